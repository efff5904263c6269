"""Calls to a fleet, in the order of their arrival.

Calls under way share the engines; the others wait.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tasks.engines.prompt_queues import PromptQueues
from warehouse.schemas import Row

ROLL_OUT = "roll_out"  # the only kind of work for which calls can share an engine


class Call:
    """One caller's request to a fleet: the prompts that wait, and the rows that came back.

    `missing` holds the (prompt_id, sample) pairs whose rows have not arrived yet.
    """

    def __init__(
        self,
        number: int,
        settings: dict[str, Any],
        queues: PromptQueues,
        group_size: int,
        missing: set[tuple[str, int]],
    ):
        self.number = number
        self.settings = settings
        self.queues = queues
        self._group_size = group_size
        self.missing = missing
        self.rows: deque[Any] = deque()
        self.error: Exception | None = None
        # engines that died and were started again during this call
        self.restarted: set[int] = set()

    def lot(self, number: int) -> list[tuple[Row, list[int]]]:
        """The next prompts for engine `number`, each with its missing samples; empty if none
        waits."""
        return [
            (prompt, self._missing_samples(prompt["prompt_id"]))
            for prompt in self.queues.next(number)
        ]

    def _missing_samples(self, prompt_id: str) -> list[int]:
        return [sample for sample in range(self._group_size) if (prompt_id, sample) in self.missing]

    def take(self, rows: list[Any]) -> None:
        """Accept rows that came back, and mark them as no longer missing."""
        self.rows += rows
        self.missing -= {(row["prompt_id"], row["sample"]) for row in rows}

    @property
    def is_settled(self) -> bool:
        """Whether its caller need not wait: a row is there, all rows came, or there is an error."""
        return bool(self.rows or self.error or not self.missing)

    def mixes_with(self, other: Call) -> bool:
        """Whether the two calls can share an engine's batches.

        Both must be rollouts from the same weights, with or without adapters.
        """
        if self.settings["work"] != ROLL_OUT or other.settings["work"] != ROLL_OUT:
            return False
        one = self.settings["policy"]
        two = other.settings["policy"]
        if one.weights != two.weights:
            return False
        # `weights` names an adapter's base; two policies of full weights must also be equal
        return bool(one.adapter or two.adapter or one.content_hash == two.content_hash)


class CallQueue:
    """First come, first served.

    A call begins when it is the first in the queue and mixes with all calls under way. So no call
    overtakes another, and the engines' weights change only when nothing is under way.
    """

    def __init__(self) -> None:
        self.under_way: list[Call] = []
        self._waiting: list[Call] = []

    def join(self, call: Call) -> None:
        """Append a call to the queue."""
        self._waiting.append(call)

    def may_begin(self, call: Call) -> bool:
        """Whether a waiting call is the first in the queue and mixes with all calls under way."""
        return self._waiting[0] is call and all(call.mixes_with(other) for other in self.under_way)

    def begin(self, call: Call) -> None:
        """Move a waiting call to those under way."""
        self._waiting.remove(call)
        self.under_way.append(call)

    def leave(self, call: Call) -> None:
        """Remove a call, waiting or under way."""
        if call in self._waiting:
            self._waiting.remove(call)
        else:
            self.under_way.remove(call)

    def find(self, number: int | None) -> Call | None:
        """The call under way with this number; None if its caller is gone."""
        return next((call for call in self.under_way if call.number == number), None)
