"""Compute the parts of pages that take seconds for a large run, while other pages stay fast."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Concatenate, ParamSpec, TypeVar

from warehouse.lake import Lake
from warehouse.store import Store

WORKERS = 2  # the findings and the figures of a run
NICENESS = 10
P = ParamSpec("P")
T = TypeVar("T")


class Behind:
    """Low-priority threads that do not slow down the threads that make pages.

    They use their own lake, whose DuckDB has one thread, so each statement runs on the thread that
    issues it.
    """

    def __init__(self, store: Store) -> None:
        self._lake = Lake(store, threads=1)
        self._asked = SimpleQueue[Callable[[], None]]()
        for _ in range(WORKERS):
            # daemon threads do not delay the server's exit
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        give_way()
        while True:
            self._asked.get()()

    def compute(
        self, work: Callable[Concatenate[Lake, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work(lake, ...)` on a low-priority thread; return its result or raise its
        exception."""
        future = Future[T]()

        def answer() -> None:
            try:
                future.set_result(work(self._lake, *args, **kwargs))
            except Exception as problem:
                future.set_exception(problem)

        self._asked.put(answer)
        return future.result()


def give_way() -> None:
    """Lower the priority of the calling thread. Does nothing except on Linux, which alone supports
    this for a single thread."""
    if sys.platform == "linux":
        niceness = max(os.getpriority(os.PRIO_PROCESS, 0), NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
