"""Search Self-Play with real engines, without Prefect's server: vLLM samples, BM25 finds documents,
TRL trains."""

from __future__ import annotations

import pytest

from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 2,
    "steps": 2,
    "questions": 12,
    "answers": 4,
    "num_engines": 1,
    "corpus_documents": 60,
    "evaluation.num_tasks": 25,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "ssp", SMALL)
    made.play()
    return made


def test_one_policy_learns_from_both_roles(played: Played) -> None:
    updates = played.rows(
        "select role, policy_hash, metrics from updates order by iteration, phase, step"
    )
    assert [row["role"] for row in updates] == ["policy"] * 4
    assert len({row["policy_hash"] for row in updates}) == 4
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)
    trained = played.rows(
        """
        select distinct r.role from batches as b join rollouts_table as r using (rollout_id)
        order by 1
        """
    )
    assert [row["role"] for row in trained] == ["proposer", "solver"]


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("ssp", SMALL, played.root, RUN)


def test_the_proposer_finds_the_document_of_its_answer_first(played: Played) -> None:
    [found] = played.rows(
        """
        select avg((t.evidence[1] = t.document_id)::int) as share, count(*) as n
        from tasks as t where t.label = 'questions' and len(t.evidence) > 0
        """
    )
    assert found["n"] > 30 and found["share"] > 0.9


def test_the_truth_about_questions_and_answers_is_known(played: Played) -> None:
    measured = played.rows(
        "select benchmark, metric, iteration, n, score from evaluations where iteration > 0"
    )
    metrics = {(row["benchmark"], row["metric"]) for row in measured}
    assert ("questions asked", "valid_hops") in metrics
    assert ("questions asked", "valid_true_reference") in metrics
    asked = [
        row
        for row in measured
        if (row["benchmark"], row["metric"]) == ("questions asked", "valid_true_reference")
    ]
    # the check lets hardly any wrong question pass
    assert all(row["score"] > 0.8 for row in asked)
    assert any(row["metric"] == "reference_error" for row in measured)


def test_scores_by_hops_and_a_report_are_made(played: Played) -> None:
    found = played.rows("select metric, iteration, n from evaluations where benchmark = 'micro'")
    scores = [(row["iteration"], row["n"]) for row in found if row["metric"] == "score"]
    assert sorted(scores) == [(0, 25), (1, 25), (2, 25)]
    of_hops = {row["metric"] for row in found if row["metric"].endswith("_hops")}
    assert of_hops == {f"score_{hops}_hops" for hops in range(1, 6)}
    assert (played.root / "reports" / "r" / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(played: Played) -> None:
    made = played.started()
    played.play()
    assert played.started() == made
