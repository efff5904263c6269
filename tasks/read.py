"""Read replies: every rollout becomes rows, or one row that says why it could not be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.prompt import Malformed
from tasks.rollouts.conversation import OVER_LIMIT
from tasks.stage import stage
from warehouse.schemas import ANSWERS, CHOICES, GATES, RUBRICS, TASKS, VOTES, PromptRow, Rollout, Row
from warehouse.store import Table

UNANSWERED = {
    "error": "engine error",
    "context": "no room left in the context",
    "length": "cut off at the token limit",
    "turns": "out of turns",
}
TOO_LONG = "prompt over the limit"
NOT_SAMPLED = (UNANSWERED["error"], TOO_LONG)  # what is not the policy's doing


@dataclass(frozen=True)
class Reader:
    """`about` gives the columns known without reading, `read` those of the reply: one dict, or several for several
    rows.

    `read` raises `Malformed` with the reason; any other exception is its fault, costs that reply only, and is stored by
    its name. The two arguments are a `Rollout` and its `PromptRow`.
    """

    about: Callable[[Any, Any], Row]
    read: Callable[[Any, Any], Row | Sequence[Row]]

    def recipe_identity(self) -> Row:
        return {"about": self.about, "read": self.read}

    def rows(self, rollout: Rollout, prompt: PromptRow) -> Iterator[Row]:
        about = self.about(rollout, prompt)
        try:
            if rollout["finish_reason"] in ("error", "context") or not rollout["turns"]:
                raise Malformed(_not_answered(rollout))
            found = self.read(rollout, prompt)
        except Exception as problem:
            yield {**about, "malformed": reason(problem)}
            return
        for row in [found] if isinstance(found, dict) else found:
            yield {**about, **row, "malformed": None}


def reason(problem: Exception) -> str:
    """Why a reply was not read, as it is stored.

    >>> reason(Malformed("no score element")), reason(KeyError("x"))
    ('no score element', 'reader failed: KeyError')
    """
    return str(problem) if isinstance(problem, Malformed) else f"reader failed: {type(problem).__name__}"


def _not_answered(rollout: Rollout) -> str:
    if rollout["finish_reason"] == "error" and OVER_LIMIT in (rollout["error"] or ""):
        return TOO_LONG
    return UNANSWERED.get(rollout["finish_reason"], rollout["finish_reason"])


def _read(rollouts: Table, prompts: Table, *, reader: Reader) -> Iterator[Row]:
    by_id = {row["prompt_id"]: row for row in prompts.rows(PromptRow)}
    for rollout in rollouts.rows(Rollout):
        yield from reader.rows(rollout, by_id[rollout["prompt_id"]])


read_choices = stage(CHOICES)(_read)
read_tasks = stage(TASKS)(_read)
read_gates = stage(GATES)(_read)
read_rubrics = stage(RUBRICS)(_read)
read_answers = stage(ANSWERS)(_read)
read_votes = stage(VOTES)(_read)
