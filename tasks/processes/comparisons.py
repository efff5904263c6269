"""Comparisons of texts by rule, in worker processes that can be killed.

A worker spends a second or two on imports before it can compare mathematics, and a run compares
after every batch of answers. So a few workers are kept for the next batch.
"""

from __future__ import annotations

import functools
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, TypeVar

from tasks.processes.child_process import parent_variables
from warehouse.schemas import Row

PROJECT = Path(__file__).resolve().parents[2]
START_S = 600.0  # for a worker's imports of what `compare` needs, on a busy machine
TIMED_OUT = "timed out"
PATIENCE = 20  # number of comparisons in a batch that may take the whole time limit
HASTE_S = 1.0  # the limit of each after that: hostile answers must not cost a batch hours
MOST_IDLE = 4  # maximum number of workers kept for the next batch: each takes about 100 MB

Compare = Callable[[Row, str], Any]  # a verdict, or scores by metric
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a comparison.

    `matched` is the verdict or, if answers are scored by several metrics, their values. It is None
    if there was nothing to compare or the comparison failed; `reason` then says why.
    """

    matched: Any
    reason: str | None
    seconds: float


class Workers:
    """`compare` in at most `num_workers` processes, one for each thread of `map`.

    They start when first needed, unless some are left from an earlier batch.
    """

    def __init__(self, compare: Compare, time_limit_s: float, num_workers: int) -> None:
        self._new = functools.partial(hire, compare)
        self._time_limit_s = time_limit_s
        self._num_timed_out = 0
        self._pool = ThreadPoolExecutor(max(1, num_workers))
        self._own = threading.local()  # each thread's worker
        self._started: list[Worker] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Cancel queued comparisons and wait for those that are running. A few processes stay for
        the next batch; the others end."""
        self._pool.shutdown(cancel_futures=True)
        for worker in self._started:
            dismiss(worker)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results of `work`, which may call `compare`, in the order of `items`."""
        return self._pool.map(work, items)

    def compare(self, task: Row, answer: str) -> Outcome:
        """Compare one answer.

        Raises RuntimeError for an exception of `compare` that is not a ValueError.
        """
        if not hasattr(self._own, "worker"):
            self._own.worker = self._new()
            self._started.append(self._own.worker)
        limit_s = self._time_limit_s
        if self._num_timed_out >= PATIENCE:
            limit_s = min(HASTE_S, limit_s)
        outcome = self._own.worker.compare(task, answer, limit_s)
        self._num_timed_out += outcome.reason == TIMED_OUT
        return outcome


class Worker:
    """A process that compares.

    It is killed and replaced if a comparison does not return in time.
    """

    def __init__(self, compare: Compare) -> None:
        self._compare = compare
        self._start()

    def _start(self) -> None:
        self._spawn()
        if problem := self.take_up(self._compare):
            self.end()
            raise RuntimeError(f"a process for {self._compare} did not start: {problem}")

    def take_up(self, compare: Compare) -> str | None:
        """Use another rule from now on. Returns the reason if the process cannot, else None."""
        self._compare = compare
        try:
            self._pipe.send(compare)
        except OSError:
            return "it has ended"
        kind, content = self._receive(START_S)
        return None if kind == "ready" else content or kind

    def _spawn(self) -> None:
        self._pipe, theirs = Pipe()
        path = os.pathsep.join([str(PROJECT), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tasks.processes.comparison_child", str(theirs.fileno())],
            env=os.environ | parent_variables() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C reaches only the parent
        )
        theirs.close()

    def compare(self, task: Row, answer: str, time_limit_s: float) -> Outcome:
        """Whether `answer` is right for `task`, or why this is unknown: the comparison took longer
        than `time_limit_s`, or its process died and was restarted. Includes the seconds it took.

        Raises RuntimeError, which names task and answer, if the comparison itself fails.
        """
        try:
            self._pipe.send((task, answer))
        except OSError:  # it died while idle
            self.end()
            self._start()
            self._pipe.send((task, answer))
        began = time.monotonic()
        kind, content = self._receive(time_limit_s)
        seconds = time.monotonic() - began
        if kind == "compared":
            return Outcome(content, None, seconds)
        if kind == "failed":
            raise RuntimeError(
                f"task {task['task_id']}, answer {answer!r}: the comparison failed\n{content}"
            )
        if kind in (TIMED_OUT, "died"):
            self.end()
            self._start()
        return Outcome(None, content, seconds)

    def _receive(self, within_s: float) -> tuple[str, Any]:
        try:
            if not self._pipe.poll(within_s):
                return TIMED_OUT, TIMED_OUT
            return self._pipe.recv()
        except (EOFError, OSError):
            return "died", "the comparison crashed"

    def end(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()


# A queue, not a list: a stage's code counts the items of every list that it reaches.
_idle = queue.Queue["Worker"](MOST_IDLE)


def hire(compare: Compare) -> Worker:
    """An idle worker, if it can take up this rule; otherwise a new one."""
    try:
        worker = _idle.get_nowait()
    except queue.Empty:
        return Worker(compare)
    if worker.take_up(compare) is not None:
        worker.end()
        return Worker(compare)
    return worker


def dismiss(worker: Worker) -> None:
    """Keep a worker for the next batch, or end it if enough are kept."""
    try:
        _idle.put_nowait(worker)
    except queue.Full:
        worker.end()
