"""Answers that quote their evidence: whether they are right, and what they quote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.blocks.questions import compare_answers, correctness
from flows.eapo.compare import marks_of, not_compared
from flows.run import Role, Run
from tasks.ask import readable
from tasks.monitors.monitor import Measured
from tasks.prompt import Row
from tasks.read import sampled, why_not_sampled
from tasks.readers.letters import lettered
from tasks.readers.quotes import verbatim
from tasks.scorers.accepted import equal
from tasks.stage import Tables, rows_by
from warehouse.schemas import Answer, Criterion, Document, Mark, Match, Task, Vote
from warehouse.store import Place, Table


def in_contexts(tasks: list[Task], contexts: list[Document]) -> Iterator[Row]:
    """Yield every readable question with its options and its context, never its reference."""
    text_of: dict[str | None, str] = {row["document_id"]: row["text"] for row in contexts}
    for task in readable(tasks):
        yield {
            "task_id": task["task_id"],
            "task_type": task["task_type"],
            "document_id": task["document_id"],
            "context": text_of[task["document_id"]],
            "question": task["text"],
            "options": lettered(task["options"]),
        }


# ---- whether they are right ----


@dataclass(frozen=True)
class AnswerChecks:
    """The results of comparing answers with references: a rule's matches, or a judge's votes."""

    matches: Tables = ()
    votes: Tables = ()


@dataclass(frozen=True)
class AnswerChecker:
    """Compares answers with their references: by a judge or, without a judge, by a rule."""

    run: Run[Any]
    judge: Role | None = None

    def check(
        self, place: Place, answers: Table, tasks: Table, label: str | None = None
    ) -> AnswerChecks:
        """Compare every answer once with its task's reference; returns the judge's votes or,
        without a judge, the rule's matches."""
        if self.judge is None:
            matches = compare_answers(
                place,
                answers,
                tasks,
                compare=equal,
                comparing=self.run.cfg.match,
                label=label,
            )
            return AnswerChecks(matches=matches)
        votes = self.run.ask(
            place,
            self.judge,
            self.run.model("judge"),
            label=label and f"judge-{label}",
            answers=answers,
            tasks=tasks,
        ).rows
        return AnswerChecks(votes=votes)


def answer_correctness(
    answers: list[Answer], matches: list[Match], votes: list[Vote]
) -> dict[str, bool | None]:
    """Whether each answer, by rollout id, is right: by the judge's last vote, or by the rule if
    there are no votes.

    An answer that could not be read is wrong. The value is None for one that was never sampled or
    on which the judge or rule has no verdict.
    """
    if not votes:
        return correctness(answers, matches)
    last_vote = {row["rollout_id"]: row["vote"] for row in votes}
    correct = dict[str, bool | None]()
    for row in answers:
        rollout_id = row["rollout_id"]
        vote = last_vote.get(rollout_id)
        if why_not_sampled(row) is not None:
            correct[rollout_id] = None
        elif not row["answer"]:
            correct[rollout_id] = False
        elif vote is None:
            correct[rollout_id] = None
        else:
            correct[rollout_id] = bool(vote)
    return correct


# ---- what they quote ----


def measure_quotes(answers: list[Answer], marks: list[Mark]) -> Measured:
    """Yield, for each readable answer, the share of its quotes that are in its prompt and the
    number of its quotes; then the marks of evidence, 0..1.

    Also yield `not_compared` for each group: 1 if its comparison cannot be read, else 0.
    """
    for row in answers:
        if row["verbatim"] is not None:
            yield "verbatim", row["verbatim"]
            yield "quotes", float(len(row["evidence"] or ()))
    for mark in marks_of(marks).values():
        yield "mark", mark
    yield from not_compared(marks)


def measure_answers(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    evidence: list[Criterion],
) -> Measured:
    """Yield metrics of answers. `score` is the share of right answers.

    `evidence_recall` is the share of the known evidence sentences that were quoted in full. A right
    answer that lacks any of them is `unfounded`. A wrong but readable answer is an `evidence_error`
    if it lacks any of them, and otherwise a `reasoning_error` (section 5.4); both are shares of all
    answers to questions with known evidence. Replies that were never sampled are left out; if there
    are any, `not_sampled` is their share.
    """
    correct = answer_correctness(answers, matches, votes)
    evidence_of = rows_by("task_id", evidence)
    answers_of = rows_by("task_id", answers)
    lacks_some = len(sampled(answers)) < len(answers)
    for task in tasks:
        sentences = [row["criterion"] or "" for row in evidence_of[task["task_id"]]]
        for row in answers_of[task["task_id"]]:
            if lacks_some:
                yield "not_sampled", float(why_not_sampled(row) is not None)
            if why_not_sampled(row) is not None:
                continue
            score = float(correct[row["rollout_id"]] or 0)
            yield "score", score
            yield f"score_{task['task_type']}", score
            if task["difficulty"]:
                yield f"score_{task['difficulty']}_sentences", score
            yield "unanswered", float(row["answer"] is None)
            if row["verbatim"] is not None:
                yield "verbatim", row["verbatim"]
            if sentences:
                recall = verbatim(sentences, "\n".join(row["evidence"] or ()))
                yield "evidence_recall", recall
                if score:
                    yield "unfounded", float(recall < 1)
                wrong = row["answer"] is not None and not score
                yield "evidence_error", float(wrong and recall < 1)
                yield "reasoning_error", float(wrong and recall == 1)
