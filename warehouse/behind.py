"""Work behind the stages: files of a published table that are written while later stages run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class Behind:
    """One piece of work after another, in a thread. After one that failed none is begun."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._work: list[Future[object]] = []

    def start(self, work: Callable[[], object]) -> None:
        """Do `work` in the thread, after what is waiting there."""
        self._thread = self._thread or ThreadPoolExecutor(1, "behind")
        self._work.append(self._thread.submit(_after, self._work[-1] if self._work else None, work))

    def then(self, work: Callable[[], object]) -> None:
        """Do `work` after what is waiting; at once if nothing is. Raises as `check` does."""
        self.check()
        if self._work:
            self.start(work)
        else:
            work()

    def check(self) -> None:
        """Raises what failed."""
        while self._work and self._work[0].done():
            self._work.pop(0).result()

    def wait(self) -> None:
        """Until everything is done. Raises what failed."""
        while self._work:
            self._work.pop(0).result()


def _after(before: Future[object] | None, work: Callable[[], object]) -> object:
    if before is not None:
        before.result()
    return work()
