"""R-Zero for real, without Prefect's server: vLLM samples, Math-Verify compares, DuckDB selects, TRL trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from warehouse.query import query
from warehouse.store import Store

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
PLAY = """
from flows.request import Request
from flows.rzero.flow import rzero_iteration
from tests.end_to_end.test_rzero import SMALL

if __name__ == "__main__":
    rzero_iteration.run(Request(flow="rzero-iteration", profile="micro", run="r", overrides=SMALL))
"""
SMALL = {
    "iterations": 2,
    "num_engines": 1,
    "challenger.steps": 1,
    "challenger.prompts_per_step": 6,
    "solver.candidates": 80,
    "solver.answers": 6,
    "solver.steps": 2,
    "solver.prompts_per_step": 8,
    "solver.group_size": 4,
    "evaluation.num_tasks": 25,
}


def play(folder: Path) -> None:
    script = folder / "play.py"
    script.write_text(PLAY)
    environment = {**os.environ, "SELFPLAY_STORE": str(folder / "store"), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("played")
    play(made)
    return made


def rows(folder: Path, sql: str) -> list[dict]:
    return query(folder / "store", sql)


def test_two_policies_learn_in_turns_from_their_own_replies(folder: Path) -> None:
    updates = rows(
        folder, "select iteration, role, parent, policy, metrics from updates order by iteration, role, step"
    )
    assert [(u["iteration"], u["role"]) for u in updates] == [
        (t, role) for t in (1, 2) for role in ("challenger", "solver", "solver")
    ]
    for role in ("challenger", "solver"):
        chain = [u for u in updates if u["role"] == role]
        assert [u["parent"] for u in chain] == [updates[0]["parent"], *(u["policy"] for u in chain[:-1])]
    assert all(u["metrics"]["grad_norm"] > 0 for u in updates)
    assert all(u["metrics"]["mean_ratio"] == pytest.approx(1, abs=1e-4) for u in updates)  # on-policy
    trained = rows(folder, "select phase, role, count(*) as n from lineage group by all")
    assert {(row["phase"], row["role"]) for row in trained} == {("challenger", "challenger"), ("solver", "solver")}
    assert sum(row["n"] for row in trained) == 2 * (6 * 4 + 2 * 8 * 4)


def test_every_candidate_has_answers_a_label_and_a_reason_or_is_kept(folder: Path) -> None:
    found = rows(folder, "select iteration, reason, mean_score, num_rollouts from selections")
    assert [sum(row["iteration"] == t for row in found) for t in (1, 2)] == [80, 80]
    kept = [row for row in found if row["reason"] is None]
    assert all(0.25 <= row["mean_score"] <= 0.75 for row in kept)
    assert all(row["num_rollouts"] == 6 for row in kept)
    trained = rows(folder, "select count(distinct task_id) as n from scores where phase = 'solver'")
    assert trained[0]["n"] == 2 * 2 * 8  # no question twice


def test_scores_and_a_report_are_made(folder: Path) -> None:
    found = rows(folder, "select iteration, n from evaluations where metric = 'score' order by iteration")
    assert [(row["iteration"], row["n"]) for row in found] == [(0, 25), (1, 25), (2, 25)]
    assert (folder / "store" / "reports" / "r" / "iter-002.html").exists()


def test_the_same_run_again_makes_nothing_anew(folder: Path) -> None:
    made = {table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("r")}
    play(folder)
    assert {table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("r")} == made
