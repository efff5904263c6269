"""MAE for real, without Prefect's server: one model asks, answers and marks through vLLM, and TRL trains it."""

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
from flows.mae.flow import mae_iteration
from tests.end_to_end.test_mae import SMALL

if __name__ == "__main__":
    mae_iteration.run(Request(flow="mae-iteration", profile="micro", run="m", overrides=SMALL))
"""
SMALL = {
    "iterations": 2,
    "steps": 2,
    "batch_size": 16,
    "num_engines": 1,
    "proposer.answers": 2,
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


def test_one_model_is_updated_once_a_step_on_replies_of_all_three_roles(folder: Path) -> None:
    updates = rows(folder, "select role, parent, policy, metrics from updates order by iteration, step")
    assert [u["role"] for u in updates] == ["model"] * 4
    assert [u["parent"] for u in updates[1:]] == [u["policy"] for u in updates[:-1]]
    assert all(u["metrics"]["grad_norm"] > 0 for u in updates)
    assert all(u["metrics"]["mean_ratio"] == pytest.approx(1, abs=1e-4) for u in updates)  # on-policy
    trained = rows(folder, "select role, count(*) as n from lineage group by role")
    assert {row["role"] for row in trained} == {"proposer", "solver", "judge"}


def test_both_pools_survive_steps_and_iterations(folder: Path) -> None:
    sizes = rows(
        folder,
        """
        select label, count(*) filter (kept) as n from pools where label is not null
        group by label, iteration, step order by label, iteration, step
        """,
    )
    pairs, questions = ([row["n"] for row in sizes if row["label"] == label] for label in ("pairs", "questions"))
    assert len(questions) == len(pairs) == 4
    assert questions == sorted(questions) and pairs == sorted(pairs)
    assert questions[-1] > questions[0] and pairs[-1] > 2 * pairs[0]


def test_marks_are_measured_against_the_truth_and_no_reference_enters(folder: Path) -> None:
    errors = rows(folder, "select score from evaluations where metric = 'mark_error'")
    assert len(errors) == 4 and all(row["score"] < 0.3 for row in errors)
    assert rows(folder, "select count(*) as n from pools where reference is not null") == [{"n": 0}]


def test_scores_and_a_report_are_made(folder: Path) -> None:
    found = rows(folder, "select iteration, n from evaluations where metric = 'score' order by iteration")
    assert [(row["iteration"], row["n"]) for row in found] == [(0, 25), (1, 25), (2, 25)]
    assert (folder / "store" / "reports" / "m" / "iter-002.html").exists()


def test_the_same_run_again_makes_nothing_anew(folder: Path) -> None:
    made = {table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("m")}
    play(folder)
    assert {table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("m")} == made
