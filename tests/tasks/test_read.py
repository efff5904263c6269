"""Replies that were never sampled, and why."""

from __future__ import annotations

import pytest

from tasks.models.engine import too_long
from tasks.read import read, reads, why_not_sampled
from tests.support.rows import publish, row
from warehouse.schemas import TABLES


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("prompt of 900 tokens is longer than the limit of 800", "prompt over the limit"),
        (too_long(5000, 4096).error, "prompt over the limit"),
        ("CUDA error", "engine error"),
        (None, "engine error"),
    ],
)
def test_a_prompt_that_does_not_fit_is_no_failure_of_the_engine(place, error, why):
    failed = row("rollouts", rollout_id="r", prompt_id="p", finish_reason="error", error=error)
    rollouts = publish(place, "rollouts", failed)
    prompts = publish(place, "prompts", row("prompts", prompt_id="p", task_id="t"))
    (answer,) = read(TABLES["answers"])(
        place, rollouts, prompts, reader=reads("answer", str)
    ).rows()
    assert (answer["malformed"], why_not_sampled(answer)) == (why, why)
