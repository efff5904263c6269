"""SPICE's rewards of a question, each a pure function of its pass rate: the share of its answers that are right.
Numbers are of arXiv 2510.24684."""

from __future__ import annotations

import math
from collections.abc import Callable

from flows.frontier import absolute_zero, r_zero, threshold

BEST_VARIANCE, TEMPERATURE = 0.25, 0.01  # eq. 1 and 5


def variance(pass_rate: float) -> float:
    """Eq. 1: a bell over the variance p(1 - p) of the answers' correctness, 1 where half of them are right.

    >>> [round(variance(n / 8), 4) for n in (0, 1, 2, 3, 4, 8)]
    [0.0439, 0.372, 0.8226, 0.9879, 1.0, 0.0439]
    """
    return math.exp(-((pass_rate * (1 - pass_rate) - BEST_VARIANCE) ** 2) / (2 * TEMPERATURE))


CHALLENGER: dict[str, Callable[[float], float]] = {  # its own, and the rivals of section 4.3
    "variance": variance,
    "absolute_zero": absolute_zero,
    "threshold": threshold,
    "r_zero": r_zero,
}
