"""Answers that quote their evidence: whether they are right, and how much of the known evidence they quote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from flows.questions import compare_answers, correctness
from flows.run import Role, Run
from tasks.accepted import equal
from tasks.ask import readable
from tasks.compare import not_compared
from tasks.prompt import Row
from tasks.readers.quotes import verbatim
from tasks.stage import Tables, rows_by
from warehouse.schemas import Answer, Criterion, Document, Mark, Match, Task, Vote
from warehouse.store import Place, Table

Measured = Iterator[tuple[str, float]]


def in_contexts(tasks: list[Task], contexts: list[Document]) -> Iterator[Row]:
    """Every question with its context; never its reference."""
    text_of: dict[str | None, str] = {row["document_id"]: row["text"] for row in contexts}
    for task in readable(tasks):
        ids = {"task_id": task["task_id"], "task_type": task["task_type"], "document_id": task["document_id"]}
        yield {**ids, "context": text_of[task["document_id"]], "question": task["text"]}


# ---- whether they are right -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """Decides whether an answer is right: by a judge that sees the reference or, without a judge, by a rule."""

    run: Run[Any]
    judge: Role | None = None

    def __call__(self, at: Place, answers: Table, tasks: Tables, label: str | None = None) -> dict[str, Tables]:
        """Matches and votes, one of them empty."""
        if self.judge is not None:
            named = f"judge-{label}" if label else None
            asked = {"label": named, "answers": answers, "tasks": tasks}
            return {"matches": (), "votes": self.run.ask(at, self.judge, self.run.model("judge"), **asked).rows}
        how = {"compare": equal, "comparing": self.run.cfg.match, "label": label}
        return {"matches": compare_answers(at, answers, tasks, **how), "votes": ()}


def outcomes(answers: list[Answer], matches: list[Match], votes: list[Vote]) -> dict[str, bool | None]:
    """Whether each answer, by rollout id, is right: by the judge's last vote, or by the rule if there are no votes.
    None if neither can tell."""
    if not votes:
        return correctness(answers, matches)
    voted = {row["rollout_id"]: row["vote"] for row in votes}
    vote_of = {row["rollout_id"]: voted.get(row["rollout_id"]) if row["answer"] else 0 for row in answers}
    return {name: None if vote is None else bool(vote) for name, vote in vote_of.items()}


# ---- what they quote ------------------------------------------------------------------------------------------------


def quoted(answers: list[Answer], marks: list[Mark]) -> Measured:
    """For each readable answer, the share of its quotes that are in its prompt, and their number. For each group, 1 if
    its comparison cannot be read."""
    for row in answers:
        if row["verbatim"] is not None:
            yield "verbatim", row["verbatim"]
            yield "quotes", float(len(row["evidence"] or ()))
    yield from not_compared(marks)


def measure_answers(
    tasks: list[Task], answers: list[Answer], matches: list[Match], votes: list[Vote], evidence: list[Criterion]
) -> Measured:
    """`score` is the share of right answers, `evidence_recall` the share of the known evidence sentences that were
    quoted in full. A right answer that lacks any of them is `unfounded`."""
    right, known = outcomes(answers, matches, votes), rows_by("task_id", evidence)
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        for row in answers_of[task["task_id"]]:
            score = float(right[row["rollout_id"]] or 0)
            yield "score", score
            yield f"score_{task['task_type']}", score
            if task["difficulty"]:
                yield f"score_{task['difficulty']}_sentences", score
            yield "unanswered", float(row["answer"] is None)
            if row["verbatim"] is not None:
                yield "verbatim", row["verbatim"]
            if sentences := [c["criterion"] or "" for c in known[task["task_id"]]]:
                found = verbatim(sentences, "\n".join(row["evidence"] or ()))
                yield "evidence_recall", found
                if score:
                    yield "unfounded", float(found < 1)
