"""SPICE with real engines, without Prefect's server: vLLM samples, Math-Verify compares, DuckDB
selects, TRL trains."""

from __future__ import annotations

import pytest

from tests.support.played import RUN, Played
from tests.support.workload import assert_as_planned

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 2,
    "steps": 1,
    "documents_per_step": 6,
    "num_engines": 1,
    "corpora": {"micro-mathematics": 0.5, "micro-general": 0.5},
    "corpus_documents": 40,
    "evaluation.num_tasks": 25,
    "probes.opponent": 0,
    "probes.checkpoints": [0, 2],
    "probes.num_documents": 8,
    "probes.attempts": 2,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    made = Played(tmp_path_factory.mktemp("played"), "spice", SMALL)
    made.play()
    return made


def test_one_policy_learns_from_both_roles(played: Played) -> None:
    updates = played.rows(
        "select iteration, role, policy_hash, metrics from updates order by iteration"
    )
    assert [row["role"] for row in updates] == ["policy", "policy"]
    assert len({row["policy_hash"] for row in updates}) == 2
    assert all(row["metrics"]["grad_norm"] > 0 for row in updates)
    # on-policy
    assert all(row["metrics"]["mean_ratio"] == pytest.approx(1, abs=1e-4) for row in updates)
    trained = played.rows(
        "select role, count(*) as n from lineage where document_title is not null group by role"
    )
    assert {row["role"] for row in trained} == {"challenger", "reasoner"}
    every = played.rows("select count(*) as n from batches")[0]["n"]
    assert sum(row["n"] for row in trained) == every


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(played: Played) -> None:
    assert_as_planned("spice", SMALL, played.root, RUN)


def test_groups_and_drawn_questions_are_as_the_method_says(played: Played) -> None:
    groups = played.rows(
        "select count(*) as n from rewards where label = 'challenger' group by step, iteration,"
        " group_id"
    )
    assert max(row["n"] for row in groups) == 6  # fewer if choices could not be read
    drawn = played.rows(
        "select count(*) as n from selections where kept group by iteration, step, document_id"
    )
    assert drawn and {row["n"] for row in drawn} == {1}
    answers = played.rows(
        "select count(*) as n from rewards where label = 'reasoner' group by group_id"
    )
    assert {row["n"] for row in answers} == {8}
    corpora = played.rows(
        "select split_part(document_id, '-', 2) as corpus, count(*) as n from samples group by all"
    )
    assert {row["corpus"] for row in corpora} == {"mathematics", "general"}


def test_scores_probes_and_a_report_are_made(played: Played) -> None:
    found = played.rows("select benchmark, iteration, n from evaluations where metric = 'score'")
    held_out = [(row["iteration"], row["n"]) for row in found if row["benchmark"] == "micro"]
    assert sorted(held_out) == [(0, 25), (1, 25), (2, 25)]
    probes = {(row["benchmark"], row["iteration"]) for row in found if row["benchmark"] != "micro"}
    assert probes == {(f"fixed {role}", t) for role in ("Reasoner", "Challenger") for t in (0, 2)}
    assert (played.root / "reports" / "r" / "iter-002.html").exists()


def test_the_same_run_again_rebuilds_nothing(played: Played) -> None:
    made = played.started()
    played.play()
    assert played.started() == made
