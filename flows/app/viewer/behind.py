"""Parts of a page that take seconds over a large run, computed so that other pages stay fast."""

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
    """Threads that give way to those that make pages, and a lake of their own.

    The lake's DuckDB has one thread, so each statement runs on the thread that asks.
    """

    def __init__(self, store: Store) -> None:
        self._lake = Lake(store, threads=1)
        self._asked = SimpleQueue[Callable[[], None]]()
        for _ in range(WORKERS):
            # as daemons they do not delay the end of the server
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        give_way()
        while True:
            self._asked.get()()

    def compute(
        self, work: Callable[Concatenate[Lake, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Wait for `work(lake, ...)`, and return or raise what it does."""
        future = Future[T]()

        def answer() -> None:
            try:
                future.set_result(work(self._lake, *args, **kwargs))
            except Exception as problem:
                future.set_exception(problem)

        self._asked.put(answer)
        return future.result()


def give_way() -> None:
    """Lower the priority of the calling thread. Only Linux can lower that of one thread."""
    if sys.platform == "linux":
        niceness = max(os.getpriority(os.PRIO_PROCESS, 0), NICENESS)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
