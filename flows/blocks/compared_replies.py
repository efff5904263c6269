"""The run whose replies are compared: its tables, and the model that sampled the replies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from flows.runtime.start import base_hash
from tasks.models.engine import Policy
from warehouse.address import EVALUATION
from warehouse.schemas import (
    ANNOTATIONS,
    GATES,
    JUDGMENTS,
    POLICIES,
    PROMPTS,
    REWARDS,
    ROLLOUTS,
    VOTES,
    Annotation,
    PolicyRow,
    Schema,
)
from warehouse.store import Store, Table

Opinions = Literal["labels", "rewards"]
ROUND = re.compile(r"-\d+$")
LEFT_OUT = "replies of evaluations are left out"


@dataclass(frozen=True)
class Source:
    """The tables of the run whose replies are compared, all of one role."""

    store: Store
    run: str
    role: str
    rollouts: tuple[Table, ...]
    prompts: tuple[Table, ...]
    annotations: tuple[Table, ...] = ()
    verdicts: tuple[Table, ...] = ()
    rewards: tuple[Table, ...] = ()

    @classmethod
    def open(cls, store: Store, run: str | None, on: Opinions, role: str | None) -> Source:
        """The tables of a run whose opinions of the kind `on` say which of `role`'s replies are
        better.

        Tables of evaluations are left out: a policy trained on them could no longer be measured by
        them. `role` defaults to the only role with opinions. Raises ValueError if there is no such
        run, if nobody labelled it, if replies of several roles have opinions and `role` names none,
        or if the role has no replies.
        """
        if run is None:
            raise ValueError("say whose replies to compare: source=RUN, or `selfplay tune RUN`")
        if not store.folder(run).exists():
            raise ValueError(f"there is no run {run!r}; `selfplay status` lists the runs")

        def tables(*schemas: Schema) -> tuple[Table, ...]:
            return tuple(
                table
                for schema in schemas
                for table in store.tables(run, schema)
                if table.at.phase != EVALUATION
            )

        annotations: tuple[Table, ...] = ()
        verdicts: tuple[Table, ...] = ()
        rewards: tuple[Table, ...] = ()
        if on == "labels":
            annotations = tables(ANNOTATIONS)
            verdicts = tables(JUDGMENTS, VOTES, GATES)
            subjects = {row["subject"] for table in annotations for row in table.rows(Annotation)}
        else:
            rewards = tables(REWARDS)
            subjects = {
                rollout_id
                for table in rewards
                for rollout_id in table.arrow["rollout_id"].to_pylist()
            }
        if not subjects:
            hint = "; people label in `selfplay view`" if on == "labels" else ""
            raise ValueError(f"the run {run} has no {on}{hint}")
        rollouts = tables(ROLLOUTS)
        role = role or _only_role(run, rollouts, subjects)
        of_role = tuple(table for table in rollouts if role_of(table) == role)
        if not of_role:
            there = ", ".join(sorted({role_of(table) for table in rollouts})) or "nobody"
            raise ValueError(
                f"the run {run} has no replies of {role!r}, only of {there}: {LEFT_OUT}"
            )
        return cls(
            store=store,
            run=run,
            role=role,
            rollouts=of_role,
            prompts=tuple(table for table in tables(PROMPTS) if role_of(table) == role),
            annotations=annotations,
            verdicts=verdicts,
            rewards=rewards,
        )

    @property
    def given_policies(self) -> dict[str, PolicyRow]:
        """The policies that the run began with, by their hash."""
        return {
            row["policy_hash"]: row
            for table in self.store.tables(self.run, POLICIES)
            for row in table.rows(PolicyRow)
        }

    @property
    def samplers(self) -> set[str]:
        """The hashes of the policies that sampled the replies."""
        return {
            policy_hash
            for table in self.rollouts
            for policy_hash in table.arrow["policy_hash"].to_pylist()
        }

    @property
    def player(self) -> str | None:
        """The player whose updated policies sampled some of the replies; None if all replies are
        from policies that the run began with."""
        for table in self.store.updates(self.run):
            row = table.rows()[-1]
            if row["policy_hash"] in self.samplers:
                return row["role"]
        return None

    def check_model(self, base: Policy, start: Policy) -> None:
        """Raise ValueError if replies were sampled from a model other than a run's `base` and the
        policy that it starts from: its tokens may differ."""
        given = self.given_policies
        for sampler in self.samplers:
            # a policy that the run trained has the tokens of its base
            model = sampler if sampler in given else base_hash(self.store, self.run)
            if model not in (None, base.content_hash, start.content_hash):
                raise ValueError(
                    f"replies of {self.role} in the run {self.run} were sampled from another model"
                    f" than models.base, {base.weights}: give the model that gave them"
                )


def role_of(table: Table) -> str:
    """The role that a table of rollouts or prompts is named after, without a round number:
    `verifier` for rollouts.verifier-2."""
    return ROUND.sub("", table.at.label or "")


def _only_role(run: str, rollouts: tuple[Table, ...], subjects: set[str]) -> str:
    """The only role with replies among the subjects. Raises ValueError for none or several."""
    roles = {
        role_of(table)
        for table in rollouts
        if not subjects.isdisjoint(table.arrow["rollout_id"].to_pylist())
    }
    if len(roles) == 1:
        return roles.pop()
    if not roles:
        raise ValueError(f"no reply of the run {run} is labelled or rewarded: {LEFT_OUT}")
    raise ValueError(
        f"replies of {', '.join(sorted(roles))} have opinions in the run {run}: name one, role=NAME"
    )
