"""Show what a command waits for: a spinner on a terminal, a plain line elsewhere.

Both go to stderr, since stdout may carry data.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

import click

PATIENCE_S = 1.0  # shorter waits are not announced
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_S = 0.1
CLEAR = "\r\x1b[2K"
_screen = threading.RLock()


def say(line: str) -> None:
    """Print a permanent line, even while a spinner is shown."""
    with _screen:
        _show("")
        click.echo(line)


@contextlib.contextmanager
def waiting(what: str | Callable[[], str | None]) -> Iterator[None]:
    """Say what the command waits for, once it has waited for a second.

    `what` completes "waiting for ...". A function is polled; if it returns None, the command waits
    for nothing. If stderr is not a terminal, every new wait is one line.
    """
    done = threading.Event()
    poll = what if callable(what) else lambda: what
    spinner = threading.Thread(target=_tell, args=(poll, done), daemon=True)
    spinner.start()
    try:
        yield
    finally:
        done.set()
        spinner.join()


def on_terminal() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()


def _tell(what: Callable[[], str | None], done: threading.Event) -> None:
    now = None
    since = time.monotonic()
    shown = None
    while not done.wait(FRAME_S):
        if what() != now:
            now = what()
            since = time.monotonic()
        elapsed = time.monotonic() - since
        if now is None or elapsed < PATIENCE_S:
            continue
        if on_terminal():
            frame = FRAMES[int(elapsed / FRAME_S) % len(FRAMES)]
            with _screen:
                _show(f"{frame} waiting for {now}, {elapsed:.0f} s")
        elif now != shown:
            click.echo(f"waiting for {now}", err=True)
            shown = now
    with _screen:
        _show("")


def _show(line: str) -> None:
    """Replace the spinner's line."""
    if on_terminal():
        sys.stderr.write(CLEAR + line[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
