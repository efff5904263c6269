"""How long searches keep an engine on a GPU idle, on its thread and beside it: `python -m
tests.bench.searches`.

This is a simulation with its own clock: an engine step takes a fixed time, every turn ends after
its own number of steps, and searches requested together take as long as plans assume for one.
`roll_out` plays the conversations, and both ways produce the same rows. Idle is the share of time
in which no step runs. Appends a line to data/bench/bench.jsonl.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from flows.plan.hardware import RATES
from tasks.models.engine import never
from tasks.rollouts.rollout import roll_out
from tasks.rollouts.searches import Hits, Searches
from tests.bench.pipeline import BENCH, line
from tests.support.conversations import SAMPLING, TALK, Library, prompt
from tests.support.scripted import POLICY, ScriptedEngine

STEP_S = 0.02
AT_ONCE = 64
CONVERSATIONS = 512
STEPS = (100, 900)


@dataclass
class Clock:
    now: float = 0.0
    idle: float = 0.0

    def wait(self, seconds: float) -> None:
        """Advance the clock without an engine step."""
        self.now, self.idle = self.now + seconds, self.idle + seconds


class TimedSearches(Searches):
    clock: Clock
    ready = 0.0

    def of(self, turns: Sequence[Any]) -> list[Hits]:
        self.clock.wait(RATES.search_s if turns else 0.0)
        return super().of(turns)

    def begin(self, turns: Sequence[Any]) -> None:
        self.ready = self.clock.now + (RATES.search_s if turns else 0.0)
        super().begin(turns)

    def begun(self) -> list[Hits]:
        self.clock.wait(max(0.0, self.ready - self.clock.now))
        return super().begun()


class SimulatedEngine(ScriptedEngine):
    """Replies by its script, a number of steps later."""

    def __init__(self, clock: Clock, is_on_gpu: bool) -> None:
        super().__init__(_reply, max_model_len=400)
        self.max_num_seqs = AT_ONCE
        self.is_on_gpu = is_on_gpu
        self.clock = clock
        self.left: dict[Any, int] = {}

    def submit(self, key: Any, token_ids: list[int], sampling: Any, seed: int, policy: Any) -> None:
        super().submit(key, token_ids, sampling, seed, policy)
        self.left[key] = random.Random(seed).randint(*STEPS)

    def poll(self, interrupted: Any = never) -> list[tuple[Any, Any]]:
        steps = min(self.left.values())
        found = []
        self.clock.now += steps * STEP_S
        self.left = {key: left - steps for key, left in self.left.items()}
        for key in [key for key, left in self.left.items() if not left]:
            del self.left[key]
            self._queue.sort(key=lambda request: request[0] == key)  # `poll` answers the last one
            found += super().poll()
        return found


def _reply(key: Any, text: str) -> str:
    return (
        "<answer> red </answer>" if text.count("<information>") == 2 else "<search> moon </search>"
    )


def played(is_on_gpu: bool) -> tuple[float, list[Any]]:
    """The engine's idle share, and the rows in the order of their ids."""
    clock = TimedSearches.clock = Clock()
    prompts = [prompt(str(i)) for i in range(CONVERSATIONS)]
    with patch("tasks.rollouts.play.Searches", TimedSearches):
        rows = list(
            roll_out(SimulatedEngine(clock, is_on_gpu), prompts, POLICY, SAMPLING, TALK, Library())
        )
    return clock.idle / clock.now, sorted(rows, key=lambda row: row["rollout_id"])


def main() -> None:
    (before, rows), (after, others) = played(False), played(True)
    assert rows == others, "searches beside the engine change rows"
    peer = (
        f"searches of {1000 * RATES.search_s:.0f} ms on the engine's own thread; {AT_ONCE} at once,"
        " simulated"
    )
    found = line("engine_idle_share_beside_searches", peer, after, before, "share")
    with BENCH.open("a") as file:
        file.write(json.dumps(found) + "\n")
    print(
        f"{found['name']:36} beside {after:.4f} on its thread {before:.4f} ratio {found['ratio']}"
    )


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
