"""Follow a run: one live screen on a terminal, a line for each new step elsewhere.

Log lines about single stages go only to a file, whose path is printed; all others stay on the
screen.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from flows.app.service.waiting import say, waiting
from tasks.reports.duration import roughly

if TYPE_CHECKING:
    from rich.console import RenderableType

    from warehouse.progress import Progress
    from warehouse.store import Store

REFRESH_S = 2.0
# a log line about a single stage: "09:00:00 mine/iter-001/x/rollouts: 3 rows in 0.1 s"
STAGE = re.compile(r"^[\d:]{8} [^\s:]+/[^\s:]+: ")


def log_file(store: Store, run: str) -> Path:
    """The file to which all flow runs of a run write their log lines."""
    return store.root / "logs" / run / "stages.log"


@contextlib.contextmanager
def followed(store: Store, run: str) -> Iterator[Follower]:
    """Show the progress of a run while the block runs. Yields a `Follower`, which takes the lines
    of the run's log."""
    path = log_file(store, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file, Follower(store, run, file) as follower:
        yield follower
    say(f"log of all stages: {path}")


class Follower:
    """Shows the progress of a run, updated every few seconds.

    When called with a line of the log, it writes the line to the file, and prints it unless it is
    about a single stage.
    """

    def __init__(self, store: Store, run: str, file: TextIO) -> None:
        from warehouse.catalogue import Catalogue

        self._catalogue = Catalogue(store)
        self._run = run
        self._file = file
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._last_place = ""
        self._poll: Callable[[], str | None] = lambda: None
        self._live = None
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(transient=True, refresh_per_second=1)

    def __call__(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()
        if not STAGE.match(line):
            self.say(line)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._live is not None:
            self._live.stop()

    @contextlib.contextmanager
    def waiting(self, poll: Callable[[], str | None]) -> Iterator[None]:
        """Like `flows.app.service.waiting.waiting`, but in a line of the live screen if there is
        one."""
        if self._live is None:
            with waiting(poll):
                yield
        else:
            self._poll = poll
            yield

    def say(self, line: str) -> None:
        """Print a permanent line above the live screen."""
        if self._live is None:
            say(line)
        else:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _follow(self) -> None:
        from warehouse.progress import progress

        while not self._ended.wait(REFRESH_S):
            # the run may be publishing or removing the tables that are read here
            with contextlib.suppress(OSError, ValueError):
                self._show(progress(self._catalogue, self._run))

    def _show(self, now: Progress) -> None:
        if self._live is not None:
            self._live.update(screen(self._run, now, self._poll()))
        elif now.place != self._last_place:
            self._last_place = now.place
            say(f"{self._run}: {now.place}; {now.num_tables} tables{told(now)}")


def told(now: Progress) -> str:
    """The time left and the last score, if they are known."""
    text = ""
    if now.left_s is not None:
        text += f"; about {roughly(now.left_s)} of stages left"
    if now.score is not None:
        text += f"; last score {now.score:.3f} ({now.benchmark})"
    return text


def screen(run: str, now: Progress, waits_for: str | None = None) -> RenderableType:
    """The live screen: the run's place, what it builds and how fast, time left, and last score."""
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("at", now.place)
    work = "–"
    if now.table is not None:
        work = now.table
        if now.rows:
            of = f" of about {now.rows_before:,}" if now.rows_before else ""
            work += f": {now.rows:,} rows{of}"
        if now.rate is not None:
            work += f", {now.rate:.1f} rows/s"
    grid.add_row("builds", work)
    left = "known after the first iteration"
    if now.left_s is not None:
        left = f"about {roughly(now.left_s)} of stages"
    grid.add_row("left", left)
    score = "none yet" if now.score is None else f"{now.score:.3f} on {now.benchmark}"
    grid.add_row("last score", score)
    if now.table is None and waits_for:
        grid.add_row("waits for", waits_for)
    grid.add_row("published", f"{now.num_tables:,} tables")
    return Panel(grid, title=run, title_align="left", expand=False)
