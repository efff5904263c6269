"""R-Zero with real engines, without Prefect's server: vLLM samples, Math-Verify compares, DuckDB
selects, TRL trains."""

from __future__ import annotations

import pytest

from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "rzero", SMALL)
    made.play()
    return made


def test_two_policies_learn_in_turns_from_their_own_replies(played: Played) -> None:
    updates = played.rows(
        "select iteration, role, parent, policy, metrics from updates order by iteration, role,"
        " step"
    )
    assert [(u["iteration"], u["role"]) for u in updates] == [
        (t, role) for t in (1, 2) for role in ("challenger", "solver", "solver")
    ]
    for role in ("challenger", "solver"):
        chain = [u for u in updates if u["role"] == role]
        assert [u["parent"] for u in chain] == [
            updates[0]["parent"],
            *(u["policy"] for u in chain[:-1]),
        ]
    assert all(u["metrics"]["grad_norm"] > 0 for u in updates)
    # on-policy
    assert all(u["metrics"]["mean_ratio"] == pytest.approx(1, abs=1e-4) for u in updates)
    trained = played.rows("select phase, role, count(*) as n from lineage group by all")
    assert {(row["phase"], row["role"]) for row in trained} == {
        ("challenger", "challenger"),
        ("solver", "solver"),
    }
    assert sum(row["n"] for row in trained) == 2 * (6 * 4 + 2 * 8 * 4)


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("rzero", SMALL, played.root, RUN)


def test_every_candidate_has_answers_a_label_and_a_reason_or_is_kept(played: Played) -> None:
    found = played.rows("select iteration, reason, mean_score, num_rollouts from selections")
    assert [sum(row["iteration"] == t for row in found) for t in (1, 2)] == [80, 80]
    kept = [row for row in found if row["reason"] is None]
    assert all(0.25 <= row["mean_score"] <= 0.75 for row in kept)
    assert all(row["num_rollouts"] == 6 for row in kept)
    trained = played.rows("select count(distinct task_id) as n from rewards where phase = 'solver'")
    assert trained[0]["n"] == 2 * 2 * 8  # no question twice


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
