"""Needle in a haystack: part of every held-out evaluation, at every length and depth of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.eapo.evidence import AnswerChecker, answer_correctness
from flows.run import Role, Run
from tasks.evaluate import evaluate
from tasks.models.engine import Policy
from tasks.needles import Grid, find, hide, measure, number_needles, number_sentences
from tasks.rollouts.tokens import count_tokens
from tasks.stage import Tables
from warehouse.store import Place, Table

LABEL = "needles"
FILLER_SIZE = 50  # clusters of the run's world


@dataclass(frozen=True)
class Haystacks:
    """Needles, the texts in which they are hidden, and the position of each."""

    grid: Grid
    tasks: Table
    sentences: Table
    contexts: Table

    @classmethod
    def open(cls, run: Run[Any], grid: Grid, filler: Tables | None, seed: int) -> Haystacks:
        """Hide numbers in the texts of `filler` or, without filler, facts of the run's world among
        other facts.

        Raises ValueError if there is no filler and the run's world has no needles.
        """
        place = run.place.iteration(0).phase(LABEL)
        if filler is None:
            world = run.world
            if world is None or world.needles is None or world.documents is None:
                raise ValueError("evaluation.needles: the run's world has no needles to hide")
            tasks = world.needles.tasks(place, grid=grid, seed=seed)
            sentences = world.needles.sentences(place, grid=grid, seed=seed)
            filler = world.documents(place, seed=seed, size=FILLER_SIZE, label="filler")
            foreign = world.needles.foreign
        else:
            tasks = number_needles(place, grid=grid, seed=seed)
            sentences = number_sentences(place, grid=grid, seed=seed)
            foreign = None
        contexts = hide(
            place,
            tasks,
            sentences,
            filler,
            grid=grid,
            count=partial(count_tokens, model=run.cfg.models.base),
            seed=seed,
            foreign=foreign,
        )
        return cls(grid, tasks, sentences, contexts)

    def search(
        self, run: Run[Any], place: Place, role: Role, policy: Policy, checker: AnswerChecker
    ) -> None:
        """Ask `policy`, in the role `role`, about every needle once, and store at `place` which
        ones were found and the metrics. `checker` decides whether an answer is right."""
        answers = run.ask(
            place, role, policy, label=LABEL, tasks=self.tasks, contexts=self.contexts
        ).rows
        checks = checker.check(place, answers, self.tasks, label=LABEL)
        needles = find(
            place,
            self.tasks,
            self.sentences,
            answers,
            grid=self.grid,
            correct=answer_correctness,
            matches=checks.matches,
            votes=checks.votes,
        )
        evaluate(place, measure, policy=policy.id, benchmark=LABEL, label=LABEL, needles=needles)
