"""Rewards for proposing a question, as functions of its share of right answers.

Papers compare their own rewards with these.
"""

from __future__ import annotations

from collections.abc import Callable


def tent(pass_rate: float, peak: float = 0.5) -> float:
    """1 if a share `peak` of the answers is right, falling linearly on both sides.

    It reaches 0 at the nearer end of [0, 1], and at the same distance from `peak` on the other
    side.

    >>> [tent(rate) for rate in (0, 0.25, 0.5, 0.75, 1)], tent(0.4, peak=0.2)
    ([0.0, 0.5, 1.0, 0.5, 0.0], 0.0)
    """
    return max(0.0, 1 - abs(pass_rate - peak) / min(peak, 1 - peak))


def absolute_zero(pass_rate: float) -> float:
    """Absolute Zero (arXiv 2505.03335): the harder the better, but 0 if all answers are wrong or
    all are right.

    >>> [absolute_zero(rate) for rate in (0, 0.25, 0.5, 1)]
    [0.0, 0.75, 0.5, 0.0]
    """
    if pass_rate in (0, 1):
        return 0.0
    return 1 - pass_rate


def r_zero(pass_rate: float) -> float:
    """R-Zero (arXiv 2508.05004, eq. 3): a tent, 1 if half of the answers are right.

    >>> [r_zero(rate) for rate in (0, 0.25, 0.5, 1)]
    [0.0, 0.5, 1.0, 0.0]
    """
    return tent(pass_rate)


def threshold(pass_rate: float) -> float:
    """1 unless all answers are right or all are wrong.

    >>> [threshold(rate) for rate in (0, 0.25, 1)]
    [0.0, 1.0, 0.0]
    """
    return float(0 < pass_rate < 1)


RIVALS: dict[str, Callable[[float], float]] = {
    f.__name__: f for f in (absolute_zero, r_zero, threshold)
}
