"""Comparisons of answers with references by rule, in worker processes that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from tasks.processes.match_child import serve
from tasks.prompt import Row
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import MATCHES

PROJECT = Path(__file__).resolve().parents[1]
START_S = 120.0  # a worker imports what `compare` needs
TIMED_OUT = "timed out"

Compare = Callable[[Row, str], bool]


@dataclass(frozen=True)
class Outcome:
    """`matched` is None when there was nothing to compare, or it could not be; `reason` then says why."""

    matched: bool | None
    reason: str | None
    seconds: float


@stage(MATCHES, tools=("num_workers",), code=(serve,))
def match(
    answers: Tables, tasks: Tables, *, compare: Compare, time_limit_s: float = 10.0, num_workers: int = 1
) -> Rows:
    """Yield one row for every answer, in their order: does `compare(task, answer)` hold it equal to the reference?

    `compare` is a module's function (or a partial of one) of a row of `tasks` and the answer's text. What it raises as
    ValueError, `Malformed` among them, becomes the reason for a null; so does a comparison that runs for more than
    `time_limit_s`, exhausts the memory or crashes: its worker is replaced. An answer without text has its own reason.
    Equal answers to one task are compared once. Any other exception is a fault of `compare` and a RuntimeError here.
    """
    rows, task_of = rows_of(answers), {row["task_id"]: row for row in rows_of(tasks)}
    pairs = list(dict.fromkeys((row["task_id"], row["answer"]) for row in rows if row["answer"] is not None))
    with _workers(compare, time_limit_s, min(num_workers, len(pairs))) as compare_here:
        found = dict(zip(pairs, compare_here([(task_of[task_id], text) for task_id, text in pairs]), strict=True))
    for row in rows:
        outcome = found.get((row["task_id"], row["answer"])) or Outcome(None, row["malformed"] or "no answer", 0.0)
        yield {"rollout_id": row["rollout_id"], "task_id": row["task_id"], **vars(outcome)}


@contextmanager
def _workers(
    compare: Compare, time_limit_s: float, num_workers: int
) -> Iterator[Callable[[list[tuple[Row, str]]], Iterator[Outcome]]]:
    """A map over pairs of task and answer, `num_workers` at a time; processes start when first needed."""
    mine, started = threading.local(), []

    def compare_one(pair: tuple[Row, str]) -> Outcome:
        if not hasattr(mine, "worker"):
            mine.worker = Worker(compare, time_limit_s)
            started.append(mine.worker)
        return mine.worker.compare(*pair)

    with ThreadPoolExecutor(max(1, num_workers)) as pool:
        try:
            yield lambda pairs: pool.map(compare_one, pairs)
        finally:
            pool.shutdown(cancel_futures=True)
            for worker in started:
                worker.end()


class Worker:
    """One process that compares; it is killed and replaced when a comparison does not come back."""

    def __init__(self, compare: Compare, time_limit_s: float) -> None:
        self._compare, self._time_limit_s = compare, time_limit_s
        self._start()

    def _start(self) -> None:
        self._pipe, theirs = Pipe()
        path = os.pathsep.join([str(PROJECT), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.processes.match_child", str(theirs.fileno())],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C reaches the parent only
        )
        theirs.close()
        self._pipe.send(self._compare)
        kind, content = self._receive(START_S)
        if kind != "ready":
            self.end()
            raise RuntimeError(f"a process for {self._compare} did not start: {content or kind}")

    def compare(self, task: Row, answer: str) -> Outcome:
        """Compare one answer. Raises RuntimeError for an exception of `compare` that is not a ValueError."""
        began = time.monotonic()
        self._pipe.send((task, answer))
        kind, content = self._receive(self._time_limit_s)
        seconds = time.monotonic() - began
        if kind == "compared":
            return Outcome(content, None, seconds)
        if kind == "failed":
            raise RuntimeError(f"task {task['task_id']}, answer {answer!r}: the comparison failed\n{content}")
        if kind in (TIMED_OUT, "died"):
            self.end()
            self._start()
        return Outcome(None, content, seconds)

    def _receive(self, within_s: float) -> tuple[str, Any]:
        try:
            return self._pipe.recv() if self._pipe.poll(within_s) else (TIMED_OUT, TIMED_OUT)
        except (EOFError, OSError):
            return "died", "the comparison crashed"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()
