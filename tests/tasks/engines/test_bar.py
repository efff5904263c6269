"""The progress that is shown while replies are sampled."""

from __future__ import annotations

import logging

import pytest

from tasks.engines import bar


def test_the_pace_is_that_since_the_first_reply(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """An engine loads for 50 s; 400 of 640 replies are an earlier attempt's. Then four come in a
    second."""
    caplog.set_level(logging.INFO)
    now = 0.0
    monkeypatch.setattr(bar.time, "monotonic", lambda: now)
    show = bar.Bar("a", "rollouts")
    now = 50.0
    for count in range(401, 641):
        show(count, 640)
        now += 0.25
    assert [record.message for record in caplog.records] == [
        "a: 401/640 rollouts",
        "a: 521/640 rollouts, 4.0/s, 30 s left",
    ]
