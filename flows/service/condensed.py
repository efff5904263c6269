"""The log of a flow for a terminal: a resumed run passes hundreds of fresh stages and runs a few."""

from __future__ import annotations

import re
from collections.abc import Callable

FRESH = re.compile(r"^(?P<at>[\d:]+) (?P<address>\S+): fresh, \d+ rows$")

Say = Callable[[str], None]


class Condensed:
    """Passes lines on to `say`, but counts consecutive fresh stages.

    >>> say = Condensed(print)
    >>> for line in ("09:00:00 a/x: fresh, 2 rows", "09:00:01 a/y: fresh, 1 rows", "09:00:02 a/z: stale"):
    ...     say(line)
    09:00:01 2 stages are fresh: a/x to a/y
    09:00:02 a/z: stale
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self.held: list[str] = []

    def __call__(self, line: str) -> None:
        if FRESH.match(line):
            self.held.append(line)
        else:
            self.end()
            self.say(line)

    def end(self) -> None:
        """Say what was counted."""
        held, self.held = self.held, []
        if len(held) == 1:
            self.say(held[0])
        elif found := [match for line in held if (match := FRESH.match(line))]:
            first, last = found[0], found[-1]
            self.say(f"{last['at']} {len(held)} stages are fresh: {first['address']} to {last['address']}")
