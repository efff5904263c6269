"""Queues of prompts, one for each engine.

Each engine gets a share, dealt so that prompts with a common prefix stay together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from warehouse.schemas import Row

LOT_SIZE = 8  # prompts handed over at once


class PromptQueues:
    """One call's queue for each engine.

    An engine whose queue is empty takes from the end of the longest queue of an engine that is
    awake.

    `awake` holds the engines that have asked for prompts of any call. Other engines keep their
    shares: they may still be loading, and fill all their room once they are up.
    """

    def __init__(
        self, parts: Sequence[Sequence[Row]], first: int, awake: set[int] | None = None
    ) -> None:
        if awake is None:
            awake = set()
        self._awake = awake
        self._waiting = {number: deque(part) for number, part in enumerate(parts, first)}
        self._handed: dict[int, list[Row]] = {number: [] for number in self._waiting}

    def next(self, number: int) -> list[Row]:
        """The next lot of prompts for an engine; empty if there are none."""
        self._awake.add(number)
        own = self._waiting[number]
        if own:
            lot = [own.popleft() for _ in range(min(LOT_SIZE, len(own)))]
        else:
            others = [
                waiting
                for other, waiting in self._waiting.items()
                if other in self._awake and waiting
            ]
            longest = max(others, key=len, default=deque[Row]())
            lot = [longest.pop() for _ in range(min(LOT_SIZE, len(longest)))][::-1]
        self._handed[number] += lot
        return lot

    def take_back(self, number: int, is_free: bool = False) -> None:
        """Put the prompts that an engine was given back into its queue, because it died.

        With `is_free`, others may take them although it is not awake.
        """
        if is_free:
            self._awake.add(number)
        else:
            self._awake.discard(number)
        self._waiting[number].extendleft(reversed(self._handed[number]))
        self._handed[number] = []


def split(prompts: list[Row], num_parts: int) -> list[list[Row]]:
    """Deal prompts to engines, evenly by length; prompts with a common prefix stay together.

    Prompts are sorted by text. Neighbours that share their first half form a group of at most a
    quarter of an engine's share.
    """
    texts = {
        prompt["prompt_id"]: "\n".join(message["content"] for message in prompt["messages"])
        for prompt in prompts
    }
    work = {prompt_id: len(text) + 200 for prompt_id, text in texts.items()}
    max_load = sum(work.values()) / (4 * num_parts)
    groups: list[list[str]] = []
    load = 0
    for prompt_id in sorted(texts, key=lambda prompt_id: texts[prompt_id]):
        text = texts[prompt_id]
        load += work[prompt_id]
        is_like_group = False
        if groups and load <= max_load:
            first_text = texts[groups[-1][0]]
            is_like_group = text.startswith(first_text[: max(len(text) // 2, 1)])
        if is_like_group:
            groups[-1].append(prompt_id)
        else:
            groups.append([prompt_id])
            load = work[prompt_id]
    loads = [0] * num_parts
    engine: dict[str, int] = {}
    for group in sorted(groups, key=len, reverse=True):
        lightest = loads.index(min(loads))
        loads[lightest] += sum(work[prompt_id] for prompt_id in group)
        engine |= dict.fromkeys(group, lightest)
    ordered = sorted(prompts, key=lambda prompt: texts[prompt["prompt_id"]])
    return [
        [prompt for prompt in ordered if engine[prompt["prompt_id"]] == part]
        for part in range(num_parts)
    ]
