"""Read a writer's reply: a question, its answer, and the quotes that support the answer."""

from __future__ import annotations

from typing import Any

from flows.long_context import evidence_rows
from tasks.prompt import Row
from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.quotes import MOST_QUOTES
from warehouse.schemas import PromptRow, Rollout

KEYS = ("question", "answer", "evidence")


def read_question(rollout: Rollout, prompt: PromptRow) -> Row:
    """Raises Malformed for a member that is missing or empty."""
    found = _members(rollout["reply"] or "")
    return {"text": found["question"], "reference": found["answer"]}


def read_evidence(rollout: Rollout, prompt: PromptRow) -> list[Row]:
    """The quotes as criteria of the task that the rollout wrote."""
    found = _members(rollout["reply"] or "")
    return list(evidence_rows(rollout["rollout_id"], found["evidence"]))


def first_row(rollout: Rollout, prompt: PromptRow) -> Row:
    """The ids of a row of evidence, needed even if the reply is malformed."""
    return {"task_id": rollout["rollout_id"], "criterion_id": f"{rollout['rollout_id']}-0", "position": 0}


def _members(reply: str) -> dict[str, Any]:
    found = last_object(reply, KEYS)
    for name in KEYS[:2]:
        text = found.get(name)
        found[name] = str(text).strip() if isinstance(text, (str, int, float)) and not isinstance(text, bool) else ""
        if not found[name]:
            raise Malformed(f"no {name}")
    quotes = found.get("evidence")
    quotes = [quotes] if isinstance(quotes, str) else quotes
    if not isinstance(quotes, list) or not all(isinstance(quote, str) for quote in quotes):
        raise Malformed("evidence is no list of quotes")
    found["evidence"] = [quote.strip() for quote in quotes if quote.strip()]
    if not found["evidence"]:
        raise Malformed("no evidence")
    if len(found["evidence"]) > MOST_QUOTES:
        raise Malformed(f"more than {MOST_QUOTES} quotes")
    return found
