"""MAE with real engines, without Prefect's server: one model asks, answers and marks through
vLLM; TRL trains it."""

from __future__ import annotations

import pytest

from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 2,
    "steps": 2,
    "batch_size": 16,
    "num_engines": 1,
    "proposer.answers": 2,
    "evaluation.num_tasks": 25,
    "monitor.max_gate_leak": None,  # with so few questions, most may be wrong by chance
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "mae", SMALL)
    made.play()
    return made


def test_one_model_is_updated_once_a_step_on_replies_of_all_three_roles(played: Played) -> None:
    updates = played.rows(
        "select role, parent, policy, metrics from updates order by iteration, step"
    )
    assert [u["role"] for u in updates] == ["model"] * 4
    assert [u["parent"] for u in updates[1:]] == [u["policy"] for u in updates[:-1]]
    assert all(u["metrics"]["grad_norm"] > 0 for u in updates)
    # on-policy
    assert all(u["metrics"]["mean_ratio"] == pytest.approx(1, abs=1e-4) for u in updates)
    trained = played.rows("select role, count(*) as n from lineage group by role")
    assert {row["role"] for row in trained} == {"proposer", "solver", "judge"}


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("mae", SMALL, played.root, RUN)


def test_both_pools_survive_steps_and_iterations(played: Played) -> None:
    sizes = played.rows(
        """
        select label, count(*) filter (kept) as n from pools where label is not null
        group by label, iteration, step order by label, iteration, step
        """,
    )
    pairs, questions = (
        [row["n"] for row in sizes if row["label"] == label] for label in ("pairs", "questions")
    )
    assert len(questions) == len(pairs) == 4
    assert questions == sorted(questions) and pairs == sorted(pairs)
    assert questions[-1] > questions[0] and pairs[-1] > 2 * pairs[0]


def test_marks_are_measured_against_the_truth_and_no_reference_enters(played: Played) -> None:
    errors = played.rows("select score from evaluations where metric = 'mark_error'")
    assert len(errors) == 4 and all(row["score"] < 0.3 for row in errors)
    assert played.rows("select count(*) as n from pools where reference is not null") == [{"n": 0}]


def test_scores_and_a_report_are_made(played: Played) -> None:
    found = played.rows(
        "select iteration, n from evaluations where metric = 'score' order by iteration"
    )
    assert [(row["iteration"], row["n"]) for row in found] == [(0, 25), (1, 25), (2, 25)]
    assert (played.root / "reports" / "r" / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(played: Played) -> None:
    made = played.started()
    played.play()
    assert played.started() == made
