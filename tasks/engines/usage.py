"""The token counts of a chat request: the maximum, and what its response reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MARKUP = 16  # maximum number of tokens that a chat template puts around a message
# what may exceed the maximum: a provider's own instructions, reasoning that no limit covers
MOST_MORE = 200_000


@dataclass(frozen=True)
class Usage:
    """The token counts of a response; None for a count that the endpoint does not report."""

    num_prompt_tokens: int | None
    num_completion_tokens: int | None

    @property
    def num_tokens(self) -> int:
        """The number of tokens that were reported."""
        return (self.num_prompt_tokens or 0) + (self.num_completion_tokens or 0)


UNKNOWN = Usage(None, None)


def most_prompt_tokens(body: dict[str, Any]) -> int:
    """The maximum number of prompt tokens: no tokenizer makes more tokens than there are bytes."""
    return sum(len(message["content"].encode()) + MARKUP for message in body["messages"])


def most_reply_tokens(body: dict[str, Any]) -> int:
    """The maximum number of reply tokens. A request may have the limit under both of its names;
    the endpoint decides which one applies."""
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
    return max((limit for limit in limits if isinstance(limit, int)), default=0)


def reported(response: Any, body: dict[str, Any]) -> Usage:
    """The counts in a response to the request `body`.

    A count far above the maximum is ignored: it would use up a spending cap or a rate limit
    although nothing was billed.
    """
    usage = response.get("usage") if isinstance(response, dict) else None
    if not isinstance(usage, dict):
        return UNKNOWN
    return Usage(
        _count(usage.get("prompt_tokens"), most_prompt_tokens(body) + MOST_MORE),
        _count(usage.get("completion_tokens"), most_reply_tokens(body) + MOST_MORE),
    )


def _count(value: Any, most: int) -> int | None:
    """A count of tokens; None if the endpoint sent something else."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None
