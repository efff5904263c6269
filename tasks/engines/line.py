"""Calls to a fleet in the order in which they came: those under way share the engines, the others wait."""

from __future__ import annotations

from collections import deque
from typing import Any

from tasks.engines.queues import Queues
from warehouse.schemas import Row

ROLL_OUT = "roll_out"  # the kind of work that calls can share an engine for


class Call:
    """One caller's request to a fleet: the prompts that wait, and the rows that came back.

    `missing` has the (prompt_id, sample) whose rows are still to come.
    """

    def __init__(
        self, number: int, settings: dict[str, Any], queues: Queues, num_samples: int, missing: set[tuple[str, int]]
    ):
        self.number, self.settings, self.queues = number, settings, queues
        self._num_samples, self.missing = num_samples, missing
        self.rows: deque[Any] = deque()
        self.error: Exception | None = None
        self.restarted: set[int] = set()  # engines that died and were started again during this call

    def lot(self, number: int) -> list[tuple[Row, list[int]]]:
        """The next prompts for an engine, each with the samples that are missing; empty when none waits."""
        return [
            (prompt, [sample for sample in range(self._num_samples) if (prompt["prompt_id"], sample) in self.missing])
            for prompt in self.queues.next(number)
        ]

    def take(self, rows: list[Any]) -> None:
        self.rows += rows
        self.missing -= {(row["prompt_id"], row["sample"]) for row in rows}

    @property
    def is_settled(self) -> bool:
        """Whether its caller need not wait: a row is there, all rows came, or an error occurred."""
        return bool(self.rows or self.error or not self.missing)

    def mixes_with(self, other: Call) -> bool:
        """Whether the two can share an engine's batches: rollouts from the same weights, with adapters or without."""
        if not self.settings["work"] == other.settings["work"] == ROLL_OUT:
            return False
        one, two = self.settings["policy"], other.settings["policy"]
        return one.weights == two.weights and bool(one.adapter or two.adapter or one.content_hash == two.content_hash)


class Line:
    """First come, first served: a call begins when it is the first that waits and mixes with all that are under way.
    So none is overtaken, and the weights that the engines hold change only when nothing is under way."""

    def __init__(self) -> None:
        self.under_way: list[Call] = []
        self._waiting: list[Call] = []

    def join(self, call: Call) -> None:
        self._waiting.append(call)

    def may_begin(self, call: Call) -> bool:
        return self._waiting[0] is call and all(call.mixes_with(other) for other in self.under_way)

    def begin(self, call: Call) -> None:
        self._waiting.remove(call)
        self.under_way.append(call)

    def leave(self, call: Call) -> None:
        """Remove a call that waits or is under way."""
        (self._waiting if call in self._waiting else self.under_way).remove(call)

    def find(self, number: int | None) -> Call | None:
        """The call under way with this number; None if its caller is gone."""
        return next((call for call in self.under_way if call.number == number), None)
