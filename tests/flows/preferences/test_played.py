"""Labels of a judge's verdicts, given by the truth of the micro-world, make a better judge.

SPELL's verifier judges whether answers equal the reference. Half of the tasks are labelled and
trained on; the verdicts that are compared before and after are on the other half.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

import pytest

from flows.app.command.tune import tuned_as
from flows.app.viewer.labels import annotation, label
from flows.method import opened
from flows.preferences.config import Config
from flows.preferences.flow import preference_update
from flows.runtime.request import Request
from flows.runtime.store_root import open_store
from flows.settings import profile as profiles
from flows.spell.config import Config as SpellConfig
from flows.spell.flow import spell_iteration
from flows.spell.roles import Roles
from tasks.generate import generate
from tasks.models.engine import Policy
from tasks.read import read
from tests.support.machines import shared_machines
from warehouse.query import query
from warehouse.schemas import VOTES
from warehouse.store import Store, Table

pytestmark = pytest.mark.slow

SPELL = {
    "iterations": 1,
    "steps": 1,
    "num_engines": 1,
    "clusters.in_world": 16,
    "clusters.per_type": None,
    "sampling.clusters_per_round": 48,
    "sampling.groups": 16,
    "sampling.max_rounds": 1,
    "evaluation.num_tasks": 18,
    "evaluation.samples": 1,
    "monitor.max_gate_leak": None,
}
SHOWN = (
    "select iteration, metric, n, score, standard_error from evaluations where run = 'tuned'",
    "select iteration, optimizer_step, metrics from updates where run = 'tuned' order by all",
    "select held_out, kept, reason, count(*) as n from pairs where run = 'tuned' group by all",
)
TUNE = {"held_out": 0.5, "iterations": 2, "update.learning_rate": 1e-4}
MATCHED = """
    select votes.judge_rollout_id, votes.vote, matches.matched, rollouts.prompt_id
    from votes
    join matches on matches.run = votes.run and matches.rollout_id = votes.rollout_id
    join rollouts on rollouts.run = votes.run and rollouts.rollout_id = votes.judge_rollout_id
    where votes.run = 'mine' and votes.vote is not null and matches.matched is not null
    order by rollouts.prompt_id, votes.judge_rollout_id
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with SPELL's run `mine`, in which ann labelled one verdict on every answer."""
    folder = tmp_path_factory.mktemp("site") / "store"
    with pytest.MonkeyPatch.context() as patch, shared_machines():
        patch.setenv("SELFPLAY_STORE", str(folder))
        spell_iteration.run(
            Request(flow="spell-iteration", profile="micro", run="mine", overrides=SPELL)
        )
        store = open_store()
        first: dict[str, dict[str, Any]] = {}
        for row in query(folder, MATCHED):
            first.setdefault(row["prompt_id"], row)
        for row in first.values():
            is_right = bool(row["vote"]) == row["matched"]
            opinion = "good" if is_right else "bad"
            label(store, "mine", annotation("verdict", row["judge_rollout_id"], "ann", opinion))
        yield store


def tune(name: str, **changed: Any) -> None:
    overrides = tuned_as("mine", "labels", None, None) | TUNE | changed
    preference_update.run(
        Request(flow=preference_update.name, profile="micro", run=name, overrides=overrides)
    )


def held_out_prompts(store: Store, name: str) -> dict[str, bool]:
    """The held-out prompts of the verifier in a tuned run, and whether the answer is right."""
    matched = {row["prompt_id"]: row["matched"] for row in query(store.root, MATCHED)}
    rows = query(
        store.root, "select distinct prompt_id, held_out from pairs where run = $run", {"run": name}
    )
    return {row["prompt_id"]: matched[row["prompt_id"]] for row in rows if row["held_out"]}


def share_of_right_verdicts(name: str, policies: dict[str, Policy | None]) -> dict[str, float]:
    """How often eight new verdicts of each policy on the held-out prompts are right; unreadable
    ones are wrong. None is the base model."""
    store = open_store()
    truth = held_out_prompts(store, name)
    overrides = tuned_as("mine", "labels", None, None)
    cfg = profiles.load(Config, "micro", overrides)
    role = Roles(profiles.load(SpellConfig, "micro", SPELL)).verifier
    shares: dict[str, float] = {}
    with opened(cfg, store, f"{name}-asked") as run:
        prompts = [table for table in store.tables("mine") if is_prompts_of(role.name, table)]
        for label_of_policy, policy in policies.items():
            place = run.place.iteration(1).phase(label_of_policy)
            right: list[float] = []
            for table in prompts:
                rollouts = generate(
                    place,
                    table,
                    policy=policy or run.models["base"],
                    sampling=role.sampling,
                    dialogue=role.dialogue,
                    fleet=run.machines.engines,
                    group_size=8,
                    seed=1,
                    label=table.at.label,
                )
                votes = read(VOTES)(
                    place, rollouts, table, reader=role.reader, label=table.at.label
                )
                prompt_of = {row["rollout_id"]: row["prompt_id"] for row in rollouts.rows()}
                for vote in votes.rows():
                    prompt_id = prompt_of[vote["judge_rollout_id"]]
                    if prompt_id in truth:
                        right.append(float(vote["vote"] == int(truth[prompt_id])))
            shares[label_of_policy] = fmean(right)
    return shares


def is_prompts_of(role: str, table: Table) -> bool:
    return table.at.table == "prompts" and (table.at.label or "").startswith(role)


def tuned_policy(store: Store, name: str) -> Policy:
    cfg = profiles.load(Config, "micro", tuned_as("mine", "labels", None, None))
    with opened(cfg, store, name, begins=False) as run:
        return run.player_after("policy", 10).policy


def test_labels_make_a_judge_that_is_right_more_often_on_held_out_tasks(store):
    tune("tuned")
    shares = share_of_right_verdicts(
        "tuned", {"before": None, "after": tuned_policy(store, "tuned")}
    )
    print(shares, len(held_out_prompts(store, "tuned")))
    for sql in SHOWN:
        print(query(store.root, sql))
    assert shares["after"] > shares["before"] + 0.02  # 0.856 and 0.904 were measured
