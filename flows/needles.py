"""Needle in a haystack: a part of every held-out evaluation, at every length and depth of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.evidence import Outcome, outcomes
from flows.micro.tables import cluster_documents, is_of_another, needle_sentences, needle_tasks
from flows.run import Role, Run
from tasks.engines.base import Policy
from tasks.evaluate import evaluate
from tasks.needles import Grid, find, hide, measure, number_needles, number_sentences
from tasks.rollouts.tokens import count_tokens
from tasks.stage import Tables
from warehouse.store import Place, Table

LABEL, NUM_CLUSTERS = "needles", 50


@dataclass(frozen=True)
class Haystacks:
    """Needles, the texts in which they are hidden, and the place of each."""

    grid: Grid
    tasks: Table
    sentences: Table
    contexts: Table

    @classmethod
    def open(cls, run: Run[Any], grid: Grid, filler: Tables | None, seed: int) -> Haystacks:
        """Numbers hidden in the texts of `filler`; without any, facts of the micro-world among facts of others."""
        place, drawn = run.place.iteration(0).phase(LABEL), {"grid": grid, "seed": seed}
        how: dict[str, Any] = {**drawn, "count": partial(count_tokens, model=run.cfg.models.base)}
        if filler is None:
            tasks, sentences = needle_tasks(place, **drawn), needle_sentences(place, **drawn)
            filler = cluster_documents(place, seed=seed, num_clusters=NUM_CLUSTERS, label="filler")
            how["foreign"] = is_of_another
        else:
            tasks, sentences = number_needles(place, **drawn), number_sentences(place, **drawn)
        return cls(grid, tasks, sentences, hide(place, tasks, sentences, filler, **how))

    def search(self, run: Run[Any], place: Place, role: Role, policy: Policy, outcome: Outcome) -> None:
        """Ask about every needle once, and store what was found."""
        shown: dict[str, Any] = {"tasks": self.tasks, "contexts": self.contexts}
        said = run.ask(place, role, policy, label=LABEL, **shown).rows
        told = outcome(place, said, self.tasks, label=LABEL)
        found = find(place, self.tasks, self.sentences, said, grid=self.grid, correct=outcomes, **told)
        evaluate(place, measure, policy=policy.id, benchmark=LABEL, label=LABEL, needles=found)
