"""The baseline RLVR (appendix E.5): fixed questions in place of the questioner's; the responder alone is trained.

Departure: the rule decides whether a second answer equals the first; the paper asks a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.clustered import Clustered
from flows.long_context import QuestionSet, read_second_answers
from flows.spell.config import Config
from flows.spell.rules import covers
from tasks.clusters import each_its_own
from tasks.corpus.documents import corpus_identity
from tasks.given import draw_tasks
from tasks.keep import Query, keep
from tasks.match import match
from warehouse.store import Place, Table

SAME_ANSWER = Query.beside(__file__, "same_answer")


@dataclass(frozen=True)
class Given:
    """Questions of a file, which of them are trained on, and the context of each as a cluster of one document."""

    tasks: Table
    kept: Table
    corpus: Clustered

    @classmethod
    def open(cls, place: Place, cfg: Config, file: str) -> Given:
        given, identity = QuestionSet.open(place, file, cfg.task_types), corpus_identity(file)
        second = read_second_answers(place, file, identity=identity)
        matches = match(place, second, given.tasks, compare=covers)
        kept = keep(place, SAME_ANSWER, tasks=given.tasks, answers=second, matches=matches)
        alone = each_its_own(place, given.contexts)
        return cls(given.tasks, kept, Clustered((given.contexts,), {str(t): alone for t in cfg.task_types}))

    def draw(self, step: Place, cfg: Config, number: int, label: str) -> Table:
        """The `number`-th draw: as many questions as a round has clusters."""
        how = {"number": number, "size": cfg.sampling.clusters_per_round, "seed": cfg.seed}
        return draw_tasks(step, self.tasks, chosen=self.kept, label=label, **how)
