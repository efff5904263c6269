"""SPELL's rewards, each a pure function of one group. Equation numbers are those of the paper (appendix E for 12).

Suffixes: V votes on an answer, G answers to a question. `None` stands for what could not be read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MALFORMED, UNGROUNDED = -1.0, -0.5  # eq. 7
UNREAD_VOTE = -1.0


def majority(vote_V: Sequence[int | None]) -> int | None:
    """Eq. 4: 1 when more than half of all votes say yes. An unreadable vote is no yes, a tie is 0; None when no vote
    could be read.

    >>> majority([1, 1, 1, 0]), majority([1, 1, 0, 0]), majority([1, 1, None, None]), majority([None, None])
    (1, 0, 0, None)
    """
    if all(vote is None for vote in vote_V):
        return None
    return int(2 * sum(vote or 0 for vote in vote_V) > len(vote_V))


def majority_share(vote_V: Sequence[int | None]) -> float | None:
    """The share of readable votes that equal the majority.

    >>> majority_share([1, 1, 1, 0]), majority_share([1, 0, None, None]), majority_share([None])
    (0.75, 0.5, None)
    """
    decided, read = majority(vote_V), [vote for vote in vote_V if vote is not None]
    return sum(vote == decided for vote in read) / len(read) if read else None


def verifier(vote_V: Sequence[int | None]) -> list[float | None]:
    """Eq. 5: 1 for agreeing with the majority; an unreadable vote -1. No readable vote: no reward at all.

    >>> verifier([1, 1, 0, None])
    [0.0, 0.0, 1.0, -1.0]
    """
    decided = majority(vote_V)
    if decided is None:
        return [None] * len(vote_V)
    return [UNREAD_VOTE if vote is None else float(vote == decided) for vote in vote_V]


def responder(rule: int, verdict: int | None) -> float:
    """Eq. 6: the rule or the verifier; where it has no verdict, the rule alone.

    >>> responder(0, 1), responder(1, 0), responder(0, None)
    (1.0, 1.0, 0.0)
    """
    return float(max(rule, verdict or 0))


def gaussian(r_bar: float, sigma: float = 0.5 / 3) -> float:
    """Eq. 7: most for questions answered rightly half the time; nothing where all or none are right.

    >>> [round(gaussian(k / 8), 4) for k in (0, 1, 2, 3, 4, 8)]
    [0.0, 0.0796, 0.3247, 0.7548, 1.0, 0.0]
    """
    return math.exp(-((r_bar - 0.5) ** 2) / (2 * sigma**2)) if 0 < r_bar < 1 else 0.0
