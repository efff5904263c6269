"""SPICE's rewards, each a pure function of one question's answers or of one answer. Numbers are of arXiv 2510.24684."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

BEST_VARIANCE, TEMPERATURE = 0.25, 0.01  # eq. 1 and 5
INVALID = -0.1  # rho, section 3.1


def pass_rate(correct_K: Sequence[bool]) -> float:
    """
    >>> pass_rate([True, False, True, True])
    0.75
    """
    return sum(correct_K) / len(correct_K)


def variance(correct_K: Sequence[bool]) -> float:
    """Eq. 1: a bell over the variance p(1 - p) of the answers' correctness, 1 where half of them are right.

    >>> [round(variance([True] * n + [False] * (8 - n)), 4) for n in (0, 1, 2, 3, 4, 8)]
    [0.0439, 0.372, 0.8226, 0.9879, 1.0, 0.0439]
    """
    p = pass_rate(correct_K)
    return math.exp(-((p * (1 - p) - BEST_VARIANCE) ** 2) / (2 * TEMPERATURE))


def absolute_zero(correct_K: Sequence[bool]) -> float:
    """Rival (Absolute Zero, arXiv 2505.03335): the harder the better, but nothing for what always or never succeeds.

    >>> absolute_zero([True, False, False, False]), absolute_zero([True]), absolute_zero([False])
    (0.75, 0.0, 0.0)
    """
    p = pass_rate(correct_K)
    return 1 - p if 0 < p < 1 else 0.0


def threshold(correct_K: Sequence[bool]) -> float:
    """Rival (section 4.3): 1 unless all answers are right or all are wrong.

    >>> threshold([True, False]), threshold([True, True])
    (1.0, 0.0)
    """
    return float(0 < sum(correct_K) < len(correct_K))


def r_zero(correct_K: Sequence[bool]) -> float:
    """Rival (R-Zero, arXiv 2508.05004): a tent over the pass rate.

    >>> r_zero([True, False]), r_zero([True, True, True, False]), r_zero([True])
    (1.0, 0.5, 0.0)
    """
    return 1 - 2 * abs(pass_rate(correct_K) - 0.5)


CHALLENGER: dict[str, Callable[[Sequence[bool]], float]] = {
    "variance": variance,
    "absolute_zero": absolute_zero,
    "threshold": threshold,
    "r_zero": r_zero,
}


def reasoner(correct: bool) -> float:
    """Section 2.3: 1 for an answer equal to the reference.

    >>> reasoner(True), reasoner(False)
    (1.0, 0.0)
    """
    return float(correct)
