"""EAPO with real engines, without Prefect's server: one model quotes and answers, another compares
quotes; TRL trains both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workload import assert_as_planned
from warehouse.query import query
from warehouse.store import Store

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
PLAY = """
from flows.runtime.request import Request
from flows.eapo.flow import eapo_iteration
from tests.end_to_end.test_eapo import SMALL

if __name__ == "__main__":
    eapo_iteration.run(Request(flow="eapo-iteration", profile="micro", run="m", overrides=SMALL))
"""
SMALL = {
    "iterations": 2,
    "steps": 2,
    "batch_size": 12,
    "num_engines": 1,
    "in_world": 48,
    "evaluation.num_tasks": 20,
    "evaluation.samples": 3,
}


def play(folder: Path) -> None:
    script = folder / "play.py"
    script.write_text(PLAY)
    environment = {
        **os.environ,
        "SELFPLAY_STORE": str(folder / "store"),
        "PYTHONPATH": str(PROJECT),
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("played")
    play(made)
    return made


def rows(folder: Path, sql: str) -> list[dict]:
    return query(folder / "store", sql)


def test_the_policy_is_updated_every_step_and_the_reward_model_once_an_iteration(
    folder: Path,
) -> None:
    updates = rows(
        folder,
        "select iteration, phase, role, metrics from updates order by iteration, phase, step",
    )
    learnt = ["policy", "policy", "reward_model"]
    assert [row["role"] for row in updates] == learnt * 2
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)
    policy = [row["metrics"] for row in updates if row["role"] == "policy"]
    # on-policy
    assert all(metrics["mean_ratio"] == pytest.approx(1, abs=1e-4) for metrics in policy)
    shown = rows(
        folder, "select role, count(distinct policy) as n from lineage group by role order by role"
    )
    assert [row["role"] for row in shown] == ["policy", "reward_model"]


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(folder: Path) -> None:
    assert_as_planned("eapo", SMALL, folder / "store", "m")


def test_every_readable_answer_has_its_quotes_and_the_share_of_them_that_is_in_the_context(
    folder: Path,
) -> None:
    (found,) = rows(
        folder,
        "select count(*) as n, avg(verbatim) as share, min(len(evidence)) as fewest from quotes",
    )
    assert found["n"] > 100 and 0.5 < found["share"] < 1 and found["fewest"] >= 1


def test_held_out_scores_evidence_recall_and_the_reward_models_choices_are_measured(
    folder: Path,
) -> None:
    metrics = rows(
        folder,
        """
        select metric, count(*) as n from evaluations
        where benchmark in ('micro', 'reward model', 'judge monitor')
        and metric in ('score', 'evidence_recall', 'best_of_n', 'mark_error') group by metric
        """,
    )
    counts = {row["metric"]: row["n"] for row in metrics}
    assert counts == {"best_of_n": 3, "evidence_recall": 3, "mark_error": 4, "score": 3}
    assert (folder / "store" / "reports" / "m" / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(folder: Path) -> None:
    made = {
        table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("m")
    }
    play(folder)
    assert {
        table.address: table.recipe["started_at"] for table in Store(folder / "store").tables("m")
    } == made
