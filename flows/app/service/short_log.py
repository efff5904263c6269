"""The log of a flow, shortened for a terminal: a resumed run passes hundreds of fresh stages."""

from __future__ import annotations

import re
from collections.abc import Callable

FRESH = re.compile(r"^(?P<at>[\d:]+) (?P<address>\S+): fresh, \d+ rows$")

Say = Callable[[str], None]


class ShortLog:
    """Passes lines on to `say`, but replaces consecutive fresh stages with their count.

    >>> log = ShortLog(print)
    >>> log("09:00:00 a/x: fresh, 2 rows")
    >>> log("09:00:01 a/y: fresh, 1 rows")
    >>> log("09:00:02 a/z: stale")
    09:00:01 2 stages are fresh: a/x to a/y
    09:00:02 a/z: stale
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self.fresh: list[re.Match[str]] = []

    def __call__(self, line: str) -> None:
        if match := FRESH.match(line):
            self.fresh.append(match)
        else:
            self.end()
            self.say(line)

    def end(self) -> None:
        """Print the pending count of fresh stages."""
        stages = self.fresh
        self.fresh = []
        if not stages:
            return
        first = stages[0]
        last = stages[-1]
        if len(stages) == 1:
            self.say(first.string)
            return
        self.say(
            f"{last['at']} {len(stages)} stages are fresh: {first['address']} to {last['address']}"
        )
