"""A role of an earlier run, whose prompts another policy answers again."""

from __future__ import annotations

from dataclasses import dataclass

from flows.blocks.compared_replies import role_of
from tasks.models.engine import Sampling
from tasks.prompt import Template
from tasks.rollouts.rollout import Dialogue
from warehouse.address import EVALUATION
from warehouse.schemas import PROMPTS, ROLLOUTS
from warehouse.store import Store, Table


@dataclass(frozen=True)
class ReplayedRole:
    """The prompts of a run's role in training, and how replies to them are sampled now."""

    name: str
    prompts: tuple[Table, ...]
    sampling: Sampling
    dialogue: Dialogue

    @classmethod
    def open(cls, store: Store, run: str | None, role: str | None) -> ReplayedRole:
        """The role `role` of a run or, by default, its only role.

        Prompts of evaluations are left out. Raises ValueError if there is no such run or role, if
        there are several roles and none is named, or if the role searches or has several turns.
        """
        if run is None:
            raise ValueError("say whose prompts to answer: source=RUN, or `selfplay distil RUN`")
        if not store.folder(run).exists():
            raise ValueError(f"there is no run {run!r}; `selfplay status` lists the runs")
        prompts: dict[str, list[Table]] = {}
        for table in store.tables(run, PROMPTS):
            if table.at.phase != EVALUATION and table.num_rows:
                prompts.setdefault(role_of(table), []).append(table)
        there = ", ".join(sorted(prompts)) or "none"
        if role is None and len(prompts) != 1:
            raise ValueError(f"the run {run} has prompts of {there}: name one, role=NAME")
        name = role or next(iter(prompts))
        if name not in prompts:
            raise ValueError(f"the run {run} has no prompts of {name!r}, only of {there}")
        rollouts = [table for table in store.tables(run, ROLLOUTS) if role_of(table) == name]
        if not rollouts:
            raise ValueError(f"the run {run} has no replies of {name!r}, which say how to sample")
        params = rollouts[-1].recipe["params"]
        dialogue = Dialogue.model_validate(params["dialogue"])
        if dialogue.search is not None or dialogue.max_turns > 1:
            raise ValueError(
                f"{name} in the run {run} searches or has several turns: only roles of one reply"
                " can be distilled"
            )
        sampled = Sampling.model_validate(params["sampling"])
        # on-policy: from the student's own distribution, without constraints on the output
        sampling = Sampling(max_tokens=sampled.max_tokens, stop=sampled.stop)
        return cls(name, tuple(prompts[name]), sampling, dialogue)

    @property
    def template(self) -> Template:
        """An empty template that names the prompts; their conversations are continued as is."""
        return Template(self.name, "")
