"""Absolute Zero with real engines and the real sandbox, without Prefect's server: vLLM samples,
programs run, TRL trains."""

from __future__ import annotations

import pytest

from flows.worlds.built_in import PROGRAMS
from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned
from warehouse.query import query
from warehouse.schemas import TASKS, Task
from warehouse.store import Store

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 2,
    "steps": 1,
    "batch_size": 12,
    "mini_batch": 72,
    "num_engines": 1,
    "evaluation.num_tasks": 24,
}
TYPES = ("abduction", "deduction", "induction")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "azr", SMALL)
    made.play()
    return made


def test_one_model_learns_from_all_roles_and_types_of_task(played: Played) -> None:
    updates = played.rows("select role, policy_hash, metrics from updates order by iteration")
    assert [row["role"] for row in updates] == ["model", "model"]
    assert len({row["policy_hash"] for row in updates}) == 2
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)
    trained = played.rows("select distinct label from advantages order by label")
    assert [row["label"] for row in trained] == [
        f"{verb}_{task_type}" for verb in ("propose", "solve") for task_type in TYPES
    ]


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("azr", SMALL, played.root, RUN)


def test_what_the_sandbox_returned_is_what_the_world_says(played: Played) -> None:
    """Most of what is proposed runs, and what a program returned is true."""
    assert PROGRAMS.sound
    proposed = [
        task
        for table in Store(played.root).tables(RUN, TASKS)
        # tables of programs that were read but not yet run have the role's name
        if not (table.at.label or "").startswith("propose_")
        for task in table.rows(Task)
        if task["prompt_id"] is not None
    ]
    valid = [task for task in proposed if task["text"] is not None]
    assert len(valid) > 0.6 * len(proposed)
    assert sum(PROGRAMS.sound(task) for task in valid) > 0.9 * len(valid)
    gaps = played.rows(
        "select score from evaluations"
        " where benchmark = 'judge monitor' and metric = 'reward_error'"
    )
    assert gaps and {row["score"] for row in gaps} == {0.0}


def test_every_type_has_a_held_out_score_after_every_iteration(played: Played) -> None:
    scores = played.rows(
        "select iteration, metric, n from evaluations where benchmark = 'micro'"
        " and metric in ('score', 'score_abduction', 'score_deduction', 'score_induction')"
    )
    assert {(row["iteration"], row["metric"], row["n"]) for row in scores} == {
        (iteration, metric, n)
        for iteration in (0, 1, 2)
        for metric, n in [("score", 24), *((f"score_{name}", 8) for name in TYPES)]
    }
    steps = query(
        played.root,
        "select iteration from evaluations where benchmark = 'tasks proposed' and metric = 'steps'",
    )
    assert {row["iteration"] for row in steps} == {1, 2}
    assert (played.root / "reports" / RUN / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(played: Played) -> None:
    made = played.started()
    played.play()
    assert played.started() == made
