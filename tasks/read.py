"""Read replies: every rollout becomes rows, or one row that says why it could not be read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tasks.prompt import Malformed
from tasks.readers.copies import COPIED, Instructions
from tasks.rollouts.conversation import OVER_LIMIT
from tasks.rollouts.tokens import count_tokens
from tasks.stage import stage
from warehouse.schemas import PromptRow, Rollout, Row, Schema
from warehouse.store import Table

UNANSWERED = {
    "error": "engine error",
    "context": "no room left in the context",
    "length": "cut off at the token limit",
    "turns": "out of turns",
}
TOO_LONG = "prompt over the limit"
STATED = ("text", "reference", "answer", "criterion")  # columns of what a reply states
Read = TypeVar("Read", bound=Mapping[str, Any])  # a row that was read from a reply
NOT_SAMPLED = (UNANSWERED["error"], TOO_LONG)  # reasons that are not the policy's fault


def why_not_sampled(row: Mapping[str, Any]) -> str | None:
    """Why a reply was never sampled: the only reason to leave it out of rewards. None for a
    sampled reply."""
    if row["malformed"] in NOT_SAMPLED:
        return row["malformed"]
    return None


def sampled(rows: Iterable[Read]) -> list[Read]:
    """The rows whose reply was sampled: what a score is a mean over."""
    return [row for row in rows if why_not_sampled(row) is None]


def why_no_verdict(rows: Iterable[Mapping[str, Any] | None]) -> str | None:
    """Why a judge gave no verdict: the reason of its first reply that was never sampled or did not
    fit the context. None if there is no such reply."""
    reasons = (row["malformed"] for row in rows if row is not None)
    return next((why for why in reasons if why in (*NOT_SAMPLED, UNANSWERED["context"])), None)


@dataclass(frozen=True)
class Reader:
    """How to read the replies of one role.

    `read` returns a reply's columns: one dict, or several for several rows. It raises `Malformed`
    with the reason; any other exception is a bug in `read`, costs only that reply, and is stored by
    its name. `measure` returns columns that malformed replies have, too. Both take a `Rollout` and
    its `PromptRow`; the ids are filled in for them. `whole` rejects a reply that was cut off or ran
    out of turns. A reply that states a text copied from `instructions` is malformed.
    """

    read: Callable[..., Row | Sequence[Row]]
    measure: Callable[..., Row] | None = None
    whole: bool = False
    instructions: Instructions | None = None

    def recipe_identity(self) -> Row:
        """What a recipe records about a reader: its settings, and its functions by their code."""
        return {
            "read": self.read,
            "measure": self.measure,
            "whole": self.whole,
            "instructions": self.instructions,
        }

    def rows(self, schema: Schema, rollout: Rollout, prompt: PromptRow) -> Iterator[Row]:
        """Yield the rows of `schema` that one rollout becomes: those read from its reply, or one
        row with the reason (`malformed`) why none could be read. An exception in the reader is such
        a reason, too."""
        known = identity(schema, rollout, prompt)
        try:
            known |= self.measure(rollout, prompt) if self.measure else {}
            if rollout["finish_reason"] in ("error", "context") or not rollout["turns"]:
                raise Malformed(why_unanswered(rollout))
            if self.whole and rollout["finish_reason"] != "final":
                raise Malformed(UNANSWERED[rollout["finish_reason"]])
            parsed = self.read(rollout, prompt)
            rows = [parsed] if isinstance(parsed, dict) else list(parsed)
            self._refuse_copies(rows)
        except Exception as problem:
            yield {**known, "malformed": reason(problem)}
            return
        for row in rows:
            yield {**known, **row, "malformed": None}

    def _refuse_copies(self, rows: Sequence[Row]) -> None:
        """Raise Malformed if a text that was read is copied from the instructions."""
        if self.instructions is None:
            return
        for row in rows:
            for column in STATED:
                text = row.get(column)
                if isinstance(text, str) and self.instructions.holds(text):
                    raise Malformed(COPIED)


def reads(
    column: str,
    read: Callable[[str], Any],
    measure: Callable[..., Row] | None = None,
    *,
    whole: bool = True,
) -> Reader:
    """The reader of a reply that holds one value, stored as `column`."""
    return Reader(functools.partial(_as_column, column=column, read=read), measure, whole=whole)


def _as_column(
    rollout: Rollout, prompt: PromptRow, *, column: str, read: Callable[[str], Any]
) -> Row:
    return {column: read(rollout["reply"] or "")}


def of_reply(read: Callable[[str], Any]) -> Callable[[Rollout, PromptRow], Any]:
    """A reader of replies as a reader of rollouts and their prompts."""
    return functools.partial(_of_reply, read=read)


def _of_reply(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], Any]) -> Any:
    return read(rollout["reply"] or "")


def answer_length(
    rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], str], model: str
) -> Row:
    """The tokens of the answer that `read` finds, even in a reply that was cut off; 0 if it
    finds none."""
    try:
        return {"answer_tokens": count_tokens(read(rollout["reply"] or ""), model)}
    except Malformed:
        return {"answer_tokens": 0}


def texts_and_searches(rollout: Rollout) -> tuple[list[str], list[bool]]:
    """The text of each turn, and whether it searched."""
    turns = rollout["turns"] or []
    return [turn["text"] for turn in turns], [turn["valid_search"] for turn in turns]


def is_readable(read: Callable[[str], Any], rollout: Rollout) -> bool:
    """Whether `read` reads something from a rollout's reply: it neither raises Malformed nor
    returns an empty value. Any other exception of `read` is passed on."""
    try:
        return bool(read(rollout["reply"] or ""))
    except Malformed:
        return False


def identity(schema: Schema, rollout: Rollout, prompt: PromptRow) -> Row:
    """The columns that say whose reply it is: the prompt's ids, and the rollout's id, which is
    also a new task's id."""
    assert schema.parsed is not None, f"{schema.name} holds no replies"
    names = {column.name for column in schema.columns}
    known: Row = {name: value for name, value in prompt.items() if name in names}
    known[schema.parsed.rollout] = rollout["rollout_id"]
    if schema.key == ("task_id",):
        known["task_id"] = rollout["rollout_id"]
    return known


def reason(problem: Exception) -> str:
    """Why a reply was not read, as it is stored.

    >>> reason(Malformed("no score element")), reason(KeyError("x"))
    ('no score element', 'reader failed: KeyError')
    """
    if isinstance(problem, Malformed):
        return str(problem)
    return f"reader failed: {type(problem).__name__}"


def why_unanswered(rollout: Rollout) -> str:
    """Why a rollout ended without a final reply."""
    if rollout["finish_reason"] == "error" and OVER_LIMIT in (rollout["error"] or ""):
        return TOO_LONG
    return UNANSWERED.get(rollout["finish_reason"], rollout["finish_reason"])


@functools.cache
def read(schema: Schema) -> Callable[..., Table]:
    """Make the stage that reads rollouts into rows of `schema` with a `reader`."""

    @stage(schema)  # as a decorator, it is not part of the code of functions that mention `read`
    def read_replies(rollouts: Table, prompts: Table, *, reader: Reader) -> Iterator[Row]:
        prompt_of = {row["prompt_id"]: row for row in prompts.rows(PromptRow)}
        for rollout in rollouts.rows(Rollout):
            yield from reader.rows(schema, rollout, prompt_of[rollout["prompt_id"]])

    return read_replies
