"""Background work of a flow: it writes files of published tables while later stages run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundWork:
    """A queue of work in one thread. Once a piece of work has failed, no other starts."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._work: list[Future[object]] = []

    def start(self, work: Callable[[], object]) -> None:
        """Queue `work`."""
        self._thread = self._thread or ThreadPoolExecutor(1, "behind")
        before = self._work[-1] if self._work else None
        self._work.append(self._thread.submit(_after, before, work))

    def then(self, work: Callable[[], object]) -> None:
        """Queue `work` if anything is waiting, else do it at once. Raises as `check` does."""
        self.check()
        if self._work:
            self.start(work)
        else:
            work()

    def check(self) -> None:
        """Raise the exception of work that has failed."""
        while self._work and self._work[0].done():
            self._work.pop(0).result()

    def wait(self) -> None:
        """Wait until everything is done. Raises the exception of work that failed."""
        while self._work:
            self._work.pop(0).result()


def _after(before: Future[object] | None, work: Callable[[], object]) -> object:
    if before is not None:
        before.result()
    return work()
