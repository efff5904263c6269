"""Search Self-Play on a real engine, shortened, and the same run killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.runtime.store_root import SOURCE
from tests.end_to_end.comparison import compare
from warehouse.query import query
from warehouse.schemas import UPDATES
from warehouse.store import Store

pytestmark = pytest.mark.slow
PLAY = """
from flows.ssp.flow import ssp_iteration
settings = {"num_engines": 1, "iterations": 1, "steps": 1, "evaluation.num_tasks": 20}
ssp_iteration("micro", "r", settings)
"""
BEGUN = "runs/r/iter-001/play/step-001/prompts.solver"


def start(store: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "SELFPLAY_STORE": str(store), "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [sys.executable, "-c", PLAY], cwd=SOURCE, env=environment, start_new_session=True
    )


def finish(store: Path) -> None:
    process = start(store)
    try:
        assert process.wait(1200) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_run_that_is_killed_in_the_middle_and_resumed_has_the_rows_of_an_untouched_one(
    tmp_path: Path,
) -> None:
    """It is killed, with its engine, while the Solver searches; the Proposer's conversations are
    kept."""
    untouched = tmp_path / "untouched"
    finish(untouched)
    killed = tmp_path / "killed"
    process = start(killed)
    begun = killed / BEGUN
    try:
        deadline = time.monotonic() + 1200
        while not begun.exists() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert process.poll() is None, "it ended before it was killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not list(Store(killed).tables("r", UPDATES))
    finish(killed)
    found = compare(Store(untouched), Store(killed), "r")
    assert found.equal, found
    [counts] = query(
        untouched,
        """
        select count(*) as n, max(num_searches) as most
        from rollouts_table
        """,
    )
    assert counts["n"] > 48 and counts["most"] > 1
    assert len(list(Store(untouched).tables("r", UPDATES))) == 1
