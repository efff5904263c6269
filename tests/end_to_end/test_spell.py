"""Rounds, votes, memory and joint updates with the real engine and trainer, in the micro-world."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.request import Request
from flows.spell.flow import spell_iteration
from flows.worlds.clusters import SIZE
from tasks.monitors.monitor import Alarm
from tests.support.machines import shared_machines
from tests.support.workload import assert_as_planned
from warehouse.query import query
from warehouse.store import Store

pytestmark = pytest.mark.slow

SMALL = {
    "iterations": 1,
    "steps": 2,
    "num_engines": 1,
    "group_size": 4,
    "clusters.in_world": 4,
    "clusters.per_type": None,
    "sampling.clusters_per_round": 12,
    "sampling.groups": 4,
    "sampling.max_rounds": 2,
    "evaluation.num_tasks": 18,
    "evaluation.samples": 2,
    "monitor.max_gate_leak": None,  # with so few questions, most may be wrong by chance
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site") / "store"
    with pytest.MonkeyPatch.context() as patch, shared_machines():
        patch.setenv("SELFPLAY_STORE", str(folder))
        yield folder


def play(name: str, **changed: Any) -> None:
    settings = {**SMALL, **changed}
    spell_iteration.run(
        Request(flow="spell-iteration", profile="micro", run=name, overrides=settings)
    )


@pytest.fixture(scope="module")
def played(store: Path) -> str:
    play("first")
    return "first"


def times(store: Path, run: str) -> dict[str, float]:
    return {table.address: table.recipe["started_at"] for table in Store(store).tables(run)}


def test_every_step_is_one_update_of_one_policy_on_all_roles(store: Path, played: str) -> None:
    updates = query(
        store,
        f"select iteration, step, parent, policy, metrics from updates where run = '{played}' order"
        " by step",
    )
    assert [(u["iteration"], u["step"]) for u in updates] == [(1, 1), (1, 2)]
    assert updates[1]["parent"] == updates[0]["policy"]
    roles = query(
        store, f"select step, role, count(*) as n from lineage where run = '{played}' group by all"
    )
    assert {r["role"] for r in roles} >= {"questioner", "responder"}
    assert sum(r["n"] for r in roles if r["role"] == "responder" and r["step"] == 1) == 4 * 4


def test_an_iteration_has_the_conversations_and_updates_of_its_plan(
    store: Path, played: str
) -> None:
    assert_as_planned("spell", SMALL, store, played)


def test_the_update_is_on_policy(store: Path, played: str) -> None:
    """One step on its own rollouts at temperature 1 without top-p: the stored log-probabilities
    are the policy's."""
    updates = query(
        store, f"select metrics['mean_ratio'] as rho from updates where run = '{played}'"
    )
    assert updates
    for row in updates:
        assert row["rho"] == pytest.approx(1, abs=1e-3)


def test_solvable_questions_come_back_in_the_next_steps_prompts(store: Path, played: str) -> None:
    templates = query(
        store,
        "select step, count(*) filter (where template like '%_again') as again, count(*) as n from"
        f" prompts where run = '{played}' and role = 'questioner' and step is not null group by"
        " step order by step",
    )
    remembered = query(
        store, f"select count(*) as n from memories where run = '{played}' and step = 1"
    )
    assert remembered[0]["n"] > 0
    assert templates[0]["again"] == 0 < templates[1]["again"]


def test_responders_read_all_documents_of_the_cluster_and_closed_book_none(
    store: Path, played: str
) -> None:
    prompts = query(
        store,
        f"select label, messages[1].content as text from prompts where run = '{played}' and role ="
        " 'responder'",
    )
    numbers = set()
    for prompt in prompts:
        shown, _, _ = prompt["text"].partition(" question : ")
        headings = re.findall(r"\babout (\w+) \.", shown)
        assert len(set(headings)) == len(headings)
        numbers.add((prompt["label"].startswith("closed-book"), len(headings)))
    assert numbers == {(True, 0), (False, SIZE)}


def test_the_same_run_again_rebuilds_nothing(store: Path, played: str) -> None:
    made = times(store, played)
    play(played)
    assert times(store, played) == made


def test_a_lost_memory_is_made_again_and_changes_nothing(store: Path, played: str) -> None:
    import shutil

    made = times(store, played)
    address = f"{played}/iter-001/play/step-001/memories"
    shutil.rmtree(store / "runs" / address)
    play(played)
    now = times(store, played)
    assert {a for a in now if now[a] != made[a]} == {address}


def test_ablations_leave_their_tables_out(store: Path) -> None:
    play(
        "bare",
        **{
            "steps": 1,
            "verifier.enabled": False,
            "questioner.memory_pairs": 0,
            "questioner.grounding_filter": False,
        },
    )
    kinds = {a.rsplit("/", 1)[1] for a in times(store, "bare")}
    assert not any(
        k.startswith(("votes", "memories", "matches.closed-book", "rewards.verifier"))
        for k in kinds
    )
    assert {r["role"] for r in query(store, "select role from lineage where run = 'bare'")} <= {
        "questioner",
        "responder",
    }


def test_roles_that_are_not_updated_are_not_in_the_batch(store: Path) -> None:
    play("responder-only", **{"steps": 1, "questioner.trained": False, "verifier.trained": False})
    assert {
        r["role"] for r in query(store, "select role from lineage where run = 'responder-only'")
    } == {"responder"}


def test_prompts_over_the_limit_are_dropped_and_counted_and_nothing_is_trained(store: Path) -> None:
    play("long", **{"steps": 1, "dialogues.input_tokens": 150, "monitor.max_over_limit": None})
    reasons = query(
        store, "select reason, count(*) as n from selections where run = 'long' group by all"
    )
    assert {"prompt over the limit"} <= {r["reason"] for r in reasons}
    assert not any(r["reason"] is None for r in reasons)
    assert query(store, "select count(*) as n from updates where run = 'long'")[0]["n"] == 0
    scores = query(
        store, "select iteration, score from evaluations where run = 'long' and metric = 'score'"
    )
    assert scores[0]["score"] > 0  # held-out prompts are cut, not dropped


def test_a_batch_that_cannot_be_filled_stops_the_run_and_says_what_to_do(store: Path) -> None:
    short = {
        "steps": 1,
        "sampling.groups": 64,
        "sampling.max_rounds": 1,
        "sampling.short_batch": "error",
    }
    with pytest.raises(Alarm, match=r"the limit is 64\. Raise sampling.max_rounds"):
        play("short", **short)
