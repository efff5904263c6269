"""A spending cap that replies never exceed.

Before it is sent, each request reserves the most that it can cost. A request that times out or
brings nothing usable counts as free, although its provider may bill it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tasks.engines.chat_client import NotAnswered, Usage
from tasks.engines.endpoint import ChatEndpoint

MARKUP = 16  # tokens that a chat template puts around a message, at most


class SpendingCapReached(RuntimeError):
    """The remaining requests may cost more than is left of `max_cost`."""


class Budget:
    """What one run may spend, shared by threads."""

    def __init__(self, endpoint: ChatEndpoint, spent: float):
        self.spent = spent
        self._endpoint = endpoint
        self._reserved = 0.0
        self._num_reserved = 0
        self._stopped = False
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def reserved(self, body: dict[str, Any]) -> Iterator[Callable[[Usage], float]]:
        """Reserve the most that a request can cost.

        Yields a function from the token counts of its response to their cost; a count that the
        endpoint does not report (None) is billed at its maximum. Raises SpendingCapReached, and
        NotAnswered after `stop`.
        """
        max_prompt_tokens = most_prompt_tokens(body["messages"])
        max_reply_tokens = _most_reply_tokens(body)
        most = self._endpoint.cost(max_prompt_tokens, max_reply_tokens)
        self._reserve(most)
        cost = 0.0

        def bill(usage: Usage) -> float:
            nonlocal cost
            num_prompt_tokens = usage.num_prompt_tokens
            if num_prompt_tokens is None:
                num_prompt_tokens = max_prompt_tokens
            num_completion_tokens = usage.num_completion_tokens
            if num_completion_tokens is None:
                num_completion_tokens = max_reply_tokens
            cost = self._endpoint.cost(num_prompt_tokens, num_completion_tokens)
            return cost

        try:
            yield bill
        finally:
            with self._changed:
                self._reserved -= most
                self._num_reserved -= 1
                self.spent += cost
                self._changed.notify_all()

    def _reserve(self, most: float) -> None:
        """Wait until `most` fits under the cap beside what is spent and reserved."""
        cap = self._endpoint.max_cost
        with self._changed:
            while cap is not None and self.spent + self._reserved + most > cap:
                if self._stopped:
                    break
                if not self._num_reserved:
                    raise SpendingCapReached(
                        f"{self.spent:.4f} of {cap:g} is spent, and the next request may cost"
                        f" {most:.4f}. What was answered is kept: raise api.max_cost and repeat the"
                        " command to ask for the rest"
                    )
                self._changed.wait()
            if self._stopped:
                raise NotAnswered("stopped", "not sent")
            self._reserved += most
            self._num_reserved += 1

    def stop(self) -> None:
        """Start no further requests."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def most_prompt_tokens(messages: list[dict[str, str]]) -> int:
    """No tokenizer makes more tokens than there are bytes."""
    return sum(len(message["content"].encode()) + MARKUP for message in messages)


def _most_reply_tokens(body: dict[str, Any]) -> int:
    """Both names of the limit may be in a request: which of them holds is up to the endpoint."""
    limits = (body.get("max_completion_tokens"), body.get("max_tokens"))
    return max((limit for limit in limits if isinstance(limit, int)), default=0)
