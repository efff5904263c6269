"""Progress of a batch of replies: how many are done, at what pace, and how long the others take."""

from __future__ import annotations

import logging
import sys
import time

from tasks.reports.duration import roughly

log = logging.getLogger("selfplay")

ON_TERMINALS_S = 0.2  # between two lines
IN_LOGS_S = 30


class Bar:
    """Progress on a terminal; elsewhere a line in the log every 30 s.

    The pace is that since the first reply: an engine may have been loaded before, and replies of an
    earlier attempt count as done.
    """

    def __init__(self, name: str, unit: str):
        self._name = name
        self._unit = unit
        self._shown = time.monotonic()
        self._first: tuple[int, float] | None = None  # the first count, and when it was reported

    def __call__(self, count: int, total: int) -> None:
        now = time.monotonic()
        self._first = self._first or (count, now)
        first_count, begun = self._first
        is_last = count == total
        terminal = sys.stderr.isatty()
        every_s = ON_TERMINALS_S if terminal else IN_LOGS_S
        if now - self._shown < every_s and not (terminal and is_last):
            return
        self._shown = now
        new = count - first_count
        line = f"{self._name}: {pace(count, total, self._unit, new, now - begun)}"
        if terminal:
            print(f"\r{line}\033[K", end="\n" if is_last else "", file=sys.stderr, flush=True)
        else:
            log.info(line)


def pace(count: int, total: int, unit: str, new: int, elapsed_s: float) -> str:
    """What is done, and how fast and how soon, given that `new` of it took `elapsed_s`.

    >>> pace(600, 1960, "rollouts", 588, 420.0)
    '600/1960 rollouts, 1.4/s, 16 min left'
    >>> pace(1, 1960, "rollouts", 0, 0.0), pace(1960, 1960, "rollouts", 1959, 28.0)
    ('1/1960 rollouts', '1960/1960 rollouts, 70/s')
    """
    done = f"{count}/{total} {unit}"
    if not new or not elapsed_s:
        return done
    per_s = new / elapsed_s
    rate = f"{per_s:.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"
    if count == total:
        return f"{done}, {rate}"
    return f"{done}, {rate}, {roughly((total - count) / per_s)} left"
