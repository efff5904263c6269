"""A spending cap that requests never exceed.

Before it is sent, each request reserves the most that it can cost. A request that may have been
billed without bringing a usable reply, such as one that timed out, is charged for the tokens that
the endpoint reports, or else for that maximum. Only requests in flight when the process is killed
are not counted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tasks.engines.chat_client import NotAnswered
from tasks.engines.endpoint import ChatEndpoint
from tasks.engines.usage import Usage, most_prompt_tokens, most_reply_tokens


class SpendingCapReached(RuntimeError):
    """The remaining requests may cost more than what is left of `max_cost`."""


class Budget:
    """What one run may spend, shared by threads.

    `spent` is what the run has spent so far, `lost` the part of it that brought no usable reply.
    `keep_loss` stores every further loss.
    """

    def __init__(
        self,
        endpoint: ChatEndpoint,
        spent: float,
        lost: float,
        keep_loss: Callable[[float], None],
    ):
        self.endpoint = endpoint
        self.spent = spent
        self.lost = lost
        self._keep_loss = keep_loss
        self._reserved = 0.0
        self._num_reserved = 0
        self._stopped = False
        self._changed = threading.Condition()

    def reserved(self, body: dict[str, Any]) -> Reservation:
        """A context manager that waits until the cost of the request `body` fits under the cap.

        Entering it raises SpendingCapReached, or NotAnswered after `stop`.
        """
        return Reservation(self, body)

    def reserve(self, most: float) -> None:
        """Wait until `most` fits under the cap beside what is spent and reserved."""
        cap = self.endpoint.max_cost
        with self._changed:
            while cap is not None and self.spent + self._reserved + most > cap:
                if self._stopped:
                    break
                if not self._num_reserved:
                    raise SpendingCapReached(self._reached(cap, most))
                self._changed.wait()
            if self._stopped:
                raise NotAnswered("stopped", "not sent")
            self._reserved += most
            self._num_reserved += 1

    def _reached(self, cap: float, most: float) -> str:
        without_reply = ""
        if self.lost:
            without_reply = (
                f" ({self.lost:.4f} of it, at most, for requests that brought no usable reply)"
            )
        return (
            f"{self.spent:.4f} of {cap:g} is spent{without_reply}, and the next request may cost"
            f" {most:.4f}. What was answered is kept: raise api.max_cost and repeat the command to"
            " ask for the rest"
        )

    def release(self, most: float, cost: float) -> None:
        """Release a reservation of `most`, of which `cost` was spent."""
        with self._changed:
            self._reserved -= most
            self._num_reserved -= 1
            self.spent += cost
            self._changed.notify_all()

    def lose(self, cost: float) -> None:
        """Record that `cost` brought no usable reply."""
        with self._changed:
            self.lost += cost
        if cost:
            self._keep_loss(cost)

    def stop(self) -> None:
        """Start no further requests."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Reservation:
    """The most that one request can cost, reserved while it is sent."""

    def __init__(self, budget: Budget, body: dict[str, Any]):
        self._budget = budget
        self._max_prompt_tokens = most_prompt_tokens(body)
        self._max_reply_tokens = most_reply_tokens(body)
        self._most = budget.endpoint.cost(self._max_prompt_tokens, self._max_reply_tokens)
        self._cost = 0.0
        self._is_held = False

    def __enter__(self) -> Reservation:
        self._budget.reserve(self._most)
        self._is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_held:
            self._budget.release(self._most, self._cost)

    def bill(self, usage: Usage) -> float:
        """Charge the cost of a response with these token counts, and return that cost.

        A count that the endpoint does not report is billed at its maximum.
        """
        num_prompt_tokens = usage.num_prompt_tokens
        if num_prompt_tokens is None:
            num_prompt_tokens = self._max_prompt_tokens
        num_completion_tokens = usage.num_completion_tokens
        if num_completion_tokens is None:
            num_completion_tokens = self._max_reply_tokens
        self._cost = self._budget.endpoint.cost(num_prompt_tokens, num_completion_tokens)
        return self._cost

    def lose(self, usage: Usage) -> None:
        """Charge what an attempt without a usable reply may cost."""
        self._budget.lose(self.bill(usage))

    def lose_and_renew(self, usage: Usage) -> None:
        """`lose`, then reserve as much for the next attempt. Raises as `Budget.reserved` does."""
        self.lose(usage)
        self._is_held = False
        self._budget.release(self._most, self._cost)
        self._cost = 0.0
        self.__enter__()
