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
    """Progress on a terminal; elsewhere a line in the log every 30 s."""

    def __init__(self, name: str, unit: str):
        self._name = name
        self._unit = unit
        self._begun = time.monotonic()
        self._shown = self._begun

    def __call__(self, count: int, total: int) -> None:
        now = time.monotonic()
        is_last = count == total
        terminal = sys.stderr.isatty()
        every_s = ON_TERMINALS_S if terminal else IN_LOGS_S
        if now - self._shown < every_s and not (terminal and is_last):
            return
        self._shown = now
        line = f"{self._name}: {pace(count, total, self._unit, now - self._begun)}"
        if terminal:
            print(f"\r{line}\033[K", end="\n" if is_last else "", file=sys.stderr, flush=True)
        else:
            log.info(line)


def pace(count: int, total: int, unit: str, elapsed_s: float) -> str:
    """
    >>> pace(600, 1960, "rollouts", 420.0)
    '600/1960 rollouts, 1.4/s, 16 min left'
    >>> pace(0, 1960, "rollouts", 30.0), pace(1960, 1960, "rollouts", 28.0)
    ('0/1960 rollouts', '1960/1960 rollouts, 70/s')
    """
    done = f"{count}/{total} {unit}"
    if not count or not elapsed_s:
        return done
    per_s = count / elapsed_s
    rate = f"{per_s:.0f}/s" if per_s >= 10 else f"{per_s:.1f}/s"
    if count == total:
        return f"{done}, {rate}"
    return f"{done}, {rate}, {roughly((total - count) / per_s)} left"
