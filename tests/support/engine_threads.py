"""Fleets whose engines are scripted and answer in threads of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from tasks.engines import call_server, pool
from tasks.engines.fleet import Fleet
from tasks.engines.fleet_child import serve_calls
from tasks.models.engine import Completion, EngineConfig, Policy, Sampling, never
from tests.support.scripted import ScriptedEngine


class HeldEngine(ScriptedEngine):
    """Leaves prompts that contain one of the words in `held` unanswered.

    Its weights change only with nothing in flight.
    """

    def __init__(
        self, reply: Callable[[Hashable, str], str | None], held: set[str], width: int = 4
    ):
        super().__init__(reply)
        self.held, self.max_num_seqs = held, width
        self.weights: list[str] = []
        self.submitted: list[Hashable] = []

    def use(self, policy: Policy) -> None:
        if self.weights[-1:] != [policy.weights]:
            assert not self._queue, "weights change while requests are in flight"
            self.weights.append(policy.weights)

    def submit(
        self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        assert self.weights[-1] == policy.weights
        self.submitted.append(key)
        super().submit(key, token_ids, sampling, seed, policy)

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        while self._queue:
            free = [
                item
                for item in self._queue
                if not self.held & set(self.tokenizer.decode(item[1]).split())
            ]
            if free:
                self._queue.remove(free[0])
                self._queue.append(free[0])
                return super().poll()
            if interrupted():
                return []
            time.sleep(0.001)
        return []

    def waiting(self) -> list[str]:
        return [self.tokenizer.decode(ids) for _, ids in self._queue]


class EngineThread:
    """Stands in for an engine's process."""

    is_lost = False
    found_no_node = False

    def __init__(self, engine: ScriptedEngine, number: int, log_dir: Path) -> None:
        self.pipe, theirs = Pipe()
        self.log_file, self.number = log_dir / "log", number
        self.engine = engine

        def work() -> None:
            serve_calls(theirs, engine)
            theirs.close()

        threading.Thread(target=work, daemon=True).start()

    def ended(self) -> str:
        return f"thread {self.number} ended"

    def close(self) -> None:
        self.pipe.close()


def scripted_fleet(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    engine: Callable[[int], ScriptedEngine],
    num_engines: int = 1,
) -> Fleet:
    """A fleet for the model in `folder`, whose rows come one by one.

    `engine(number)` makes an engine each time that it is started.
    """
    monkeypatch.setattr(call_server, "ROWS_AT_ONCE", 1)
    monkeypatch.setattr(
        pool, "Child", lambda _, number, log_dir: EngineThread(engine(number), number, log_dir)
    )
    return Fleet(EngineConfig(model=str(folder), max_model_len=64), num_engines, folder)
