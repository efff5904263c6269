"""The baseline RLVR (appendix E.5): fixed questions train the responder, and nobody asks or votes.

Departure: the rule decides whether a second answer equals the first; the paper asks a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.blocks.long_context import QuestionSet, read_second_answers
from flows.spell.config import Config
from flows.spell.corpus import ClusteredCorpus
from flows.spell.rules import covers
from tasks.clusters import each_its_own
from tasks.corpus.documents import corpus_identity
from tasks.given import draw_tasks
from tasks.keep import Query, keep
from tasks.match import match
from warehouse.store import Place, Table

SAME_ANSWER = Query.beside(__file__, "same_answer")


@dataclass(frozen=True)
class FixedQuestions:
    """The questions of a file, which of them are trained on, and their contexts.

    The context of each question is a cluster of one document.
    """

    tasks: Table
    kept: Table
    corpus: ClusteredCorpus

    @classmethod
    def open(cls, place: Place, cfg: Config, file: str) -> FixedQuestions:
        """Read a file, and leave out questions whose `second_answer` differs.

        Raises ValueError if there is no such file.
        """
        questions = QuestionSet.open(place, file, cfg.task_types)
        tasks = questions.tasks
        answers = read_second_answers(place, file, identity=corpus_identity(file))
        matches = match(place, answers, tasks, compare=covers)
        kept = keep(place, SAME_ANSWER, tasks=tasks, answers=answers, matches=matches)
        memberships = each_its_own(place, questions.contexts)
        corpus = ClusteredCorpus(
            documents=(questions.contexts,),
            memberships={str(task_type): memberships for task_type in cfg.task_types},
        )
        return cls(tasks, kept, corpus)

    def draw(self, step: Place, cfg: Config, number: int, label: str) -> Table:
        """The `number`-th draw: as many questions as a round has clusters."""
        return draw_tasks(
            step,
            self.tasks,
            chosen=self.kept,
            number=number,
            size=cfg.sampling.clusters_per_round,
            seed=cfg.seed,
            label=label,
        )
