"""Why a run stopped, as its store remembers it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from tasks.monitors.monitor import Alarm
from warehouse.stopped import remembered, stopped
from warehouse.store import Store

LEAK = Alarm("r/iter-001/evaluations.judge", "gate_leak", 0.7, 0.5, "Look at the rows.")


def stop(store: Store, error: BaseException) -> None:
    with pytest.raises(type(error)), remembered(store, "r"):
        raise error


def test_an_error_is_kept_until_the_run_goes_on(store: Store) -> None:
    assert stopped(store, "r") is None
    stop(store, LEAK)
    cause = stopped(store, "r")
    assert cause is not None
    assert (cause.kind, cause.why) == ("Alarm", str(LEAK))
    with remembered(store, "r"):
        assert stopped(store, "r") is None
    assert stopped(store, "r") is None


def test_an_interrupted_run_has_no_error(store: Store) -> None:
    stop(store, LEAK)
    stop(store, KeyboardInterrupt())
    assert stopped(store, "r") is None


def test_an_error_on_a_full_disk_is_still_raised(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Store, "keep", full)
    stop(store, LEAK)
    assert stopped(store, "r") is None


def test_status_tells_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    stop(store, LEAK)
    told = CliRunner().invoke(cli.main, ["status", "r"])
    assert told.exit_code == 0
    assert "by Alarm: r/iter-001/evaluations.judge: gate_leak is 0.7, the limit" in told.output
