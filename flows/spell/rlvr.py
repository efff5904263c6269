"""Train the responder alone on the questions of a file, without questioner or verifier: the
baseline RLVR (appendix E.5), or training on your own questions.

Departures: if a file has second answers, the rule decides whether they equal the first ones;
`selfplay ask --twice --judge MODEL` has a model decide this before the file is written, as in the
paper. A file may have no answers: a question's reference is then its majority answer, as in TTRL.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from flows.blocks.corpora import documents_of_run
from flows.blocks.long_context import QuestionSet, has_contexts, read_second_answers
from flows.run import Run
from flows.spell.config import Config
from flows.spell.corpus import ClusteredCorpus
from flows.spell.rules import covers
from tasks.clusters import each_its_own
from tasks.corpus.documents import corpus_identity
from tasks.given import draw_tasks, without_answers
from tasks.keep import Query, keep, num_kept
from tasks.match import match
from tasks.wrong_references import wrong_tasks
from warehouse.store import Place, Table

USABLE = Query.beside(__file__, "usable_questions")


@dataclass(frozen=True)
class FixedQuestions:
    """The questions of a file with their contexts, and which of them are trained on.

    Each question's context is a cluster of one document.
    """

    tasks: Table
    kept: Table
    num_questions: int  # the number that are trained on
    corpus: ClusteredCorpus
    has_answers: bool

    @classmethod
    def open(cls, run: Run[Config], place: Place, file: str) -> FixedQuestions:
        """Read a file and leave out questions whose `second_answer` differs from the first, or
        whose answer is longer than a reply may be (`dialogues.answer_words`).

        Questions without contexts get passages of the run's corpus. Raises ValueError if there is
        no such file, if it has too few questions, or if only some of its questions have an answer.
        """
        cfg = run.cfg
        documents = None
        if Path(file).is_file() and not has_contexts(file):
            documents = documents_of_run(run, place)
        questions = QuestionSet.open(
            place,
            file,
            cfg.task_types,
            documents=documents,
            num_passages=cfg.evaluation.passages,
            needs_answers=False,
        )
        tasks = questions.tasks
        num_answered = sum(row["reference"] is not None for row in tasks.rows())
        if 0 < num_answered < tasks.num_rows:
            raise ValueError(
                f"{file}: {num_answered} of {tasks.num_rows} questions have an answer: give all of"
                " them one, or none"
            )
        answers = read_second_answers(place, file, identity=corpus_identity(file))
        matches = match(place, answers, tasks, compare=covers)
        kept = keep(
            place,
            USABLE,
            most_words=cfg.dialogues.answer_words,
            tasks=tasks,
            answers=answers,
            matches=matches,
        )
        num_questions = num_kept(kept)
        if num_questions == 0:
            raise ValueError(f"{file} has no question to train on: {_reasons(kept)}")
        if cfg.given_questions is not None:
            if num_questions < cfg.given_questions:
                raise ValueError(
                    f"{file} has {num_questions} questions to train on, given_questions asks for"
                    f" {cfg.given_questions}: ask for fewer"
                )
            num_questions = cfg.given_questions
            tasks = draw_tasks(
                place,
                tasks,
                chosen=kept,
                number=0,
                size=num_questions,
                seed=cfg.seed,
                label="drawn",
            )
        if cfg.given_wrong:
            tasks = wrong_tasks(
                place, tasks, chosen=kept, share=cfg.given_wrong, seed=cfg.seed, label="wrong"
            )
        has_answers = num_answered > 0 and cfg.given_answers
        if not has_answers:
            tasks = without_answers(place, tasks, label="unanswered")
        memberships = each_its_own(place, questions.contexts)
        corpus = ClusteredCorpus(
            documents=(questions.contexts,),
            memberships={str(task_type): memberships for task_type in cfg.task_types},
        )
        return cls(tasks, kept, num_questions, corpus, has_answers=has_answers)

    def draw(self, step: Place, cfg: Config, number: int, label: str) -> Table:
        """The `number`-th draw: as many questions as a round has clusters, or all if there are
        fewer."""
        return draw_tasks(
            step,
            self.tasks,
            chosen=self.kept,
            number=number,
            size=min(cfg.sampling.clusters_per_round, self.num_questions),
            seed=cfg.seed,
            label=label,
        )


def _reasons(selections: Table) -> str:
    """How often each reason occurs among dropped questions, the most frequent first."""
    reasons = Counter(row["reason"] for row in selections.rows())
    return ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
