"""Golden Goose with real engines, without Prefect's server: vLLM masks and fills, rules compare,
DuckDB selects, TRL trains."""

from __future__ import annotations

import pytest

from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 2,
    "documents": 12,
    "corpus_documents": 30,
    "steps": 1,
    "tasks_per_step": 6,
    "mini_batch": 6,
    "answers": 6,
    "num_engines": 1,
    "difficulty.attempts": 4,
    "evaluation.num_tasks": 24,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "goose", SMALL)
    made.play()
    return made


def test_tasks_are_masked_texts_of_the_corpus(played: Played) -> None:
    tasks = played.rows(
        "select text, options, reference from tasks where malformed is null and phase = 'making'"
    )
    assert len(tasks) >= 12
    assert all("[MASK]" in row["text"] and len(set(row["options"])) == 4 for row in tasks)
    documents = played.rows("select document_id, count(*) as n from samples group by 1")
    assert len(documents) == 24 and {row["n"] for row in documents} == {1}


def test_the_policy_learns_from_tasks_that_it_does_not_always_solve(played: Played) -> None:
    easy = played.rows(
        "select s.kept, avg(r.reward) as solved from selections as s join rewards as r"
        " using (iteration, task_id) where r.phase = 'making' group by s.iteration, task_id, s.kept"
    )
    assert {row["kept"] for row in easy if row["solved"] == 1} <= {False}
    assert all(row["kept"] for row in easy if row["solved"] < 1)
    updates = played.rows("select policy_hash, metrics from updates order by iteration")
    assert len({row["policy_hash"] for row in updates}) == 2
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("goose", SMALL, played.root, RUN)


def test_scores_and_a_report_are_made(played: Played) -> None:
    found = played.rows(
        "select iteration, n from evaluations where metric = 'score' and benchmark = 'micro'"
    )
    assert sorted((row["iteration"], row["n"]) for row in found) == [(0, 24), (1, 24), (2, 24)]
    assert (played.root / "reports" / "r" / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(played: Played) -> None:
    made = played.started()
    played.play()
    assert played.started() == made
