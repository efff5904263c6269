"""Read a writer's reply: a question, its answer, and the quotes that support the answer."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.corpus.evidence import evidence_rows
from tasks.prompt import Row
from tasks.read import UNANSWERED
from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.quotes import MOST_QUOTES
from warehouse.schemas import PromptRow, Rollout

KEYS = ("question", "answer", "evidence")


@dataclass(frozen=True)
class WrittenQuestion:
    """The parts of a writer's reply, none of them empty."""

    question: str
    answer: str
    quotes: list[str]


def read_question(rollout: Rollout, prompt: PromptRow) -> Row:
    """The question and its answer. Raises Malformed for a member that is missing or empty."""
    written = _written(rollout["reply"] or "")
    return {"text": written.question, "reference": written.answer}


def read_whole_question(rollout: Rollout, prompt: PromptRow) -> Row:
    """As `read_question`, but also raises Malformed for a reply that was cut off."""
    if rollout["finish_reason"] != "final":
        raise Malformed(UNANSWERED[rollout["finish_reason"]])
    return read_question(rollout, prompt)


def read_evidence(rollout: Rollout, prompt: PromptRow) -> list[Row]:
    """The quotes of a reply as criteria of the task that the reply states. Raises Malformed as
    `read_question` does."""
    written = _written(rollout["reply"] or "")
    return list(evidence_rows(rollout["rollout_id"], written.quotes))


def first_row(rollout: Rollout, prompt: PromptRow) -> Row:
    """The ids of a row of evidence, needed even if the reply is malformed."""
    return {
        "task_id": rollout["rollout_id"],
        "criterion_id": f"{rollout['rollout_id']}-0",
        "position": 0,
    }


def _written(reply: str) -> WrittenQuestion:
    members = last_object(reply, KEYS)
    question = _text(members, "question")
    answer = _text(members, "answer")
    quotes = members.get("evidence")
    if isinstance(quotes, str):
        quotes = [quotes]
    if not isinstance(quotes, list) or not all(isinstance(quote, str) for quote in quotes):
        raise Malformed("evidence is no list of quotes")
    quotes = [quote.strip() for quote in quotes if quote.strip()]
    if not quotes:
        raise Malformed("no evidence")
    if len(quotes) > MOST_QUOTES:
        raise Malformed(f"more than {MOST_QUOTES} quotes")
    return WrittenQuestion(question, answer, quotes)


def _text(members: Row, name: str) -> str:
    """A member that is text or a number, as text. Raises Malformed if it is neither, or empty."""
    value = members.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Malformed(f"no {name}")
    text = str(value).strip()
    if not text:
        raise Malformed(f"no {name}")
    return text
