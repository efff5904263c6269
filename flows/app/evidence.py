"""What a set of seeds can show: the interval of a mean, and the verdict on a claim.

A claim is *shown* if the whole 95% interval lies on its side of the threshold, and *contradicted*
if the whole interval lies on the other side. If the interval contains the threshold but not the
paper's larger effect, the effect is *smaller than reported*; that verdict compares with the
paper's number, not with our threshold. Otherwise the runs *cannot tell*, and the smallest effect
that they could have shown says whether more seeds are worth playing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import beta, t

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2  # the probability of *shown* when there is no effect
SHOWN = "shown"
CONTRADICTED = "contradicted"
SMALLER = "smaller than reported"
CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with its 95% confidence interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"{self.mean:.3f}"
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean of `values`, one per seed; unbounded for a single seed.

    For paired differences it is the interval of the paired t-test.

    >>> print(mean_interval([0.1, 0.2, 0.3]))
    0.200 [-0.048, 0.448]
    """
    mean = fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(t.ppf(1 - TAIL, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def share_interval(values: Sequence[float]) -> Interval:
    """The Clopper-Pearson interval of a share of seeds; each value is 1 (it happened) or 0.

    >>> print(share_interval([1, 1, 1, 1, 1, 1]))
    1.000 [0.541, 1.000]
    """
    num_seeds = len(values)
    happened = round(sum(values))
    low = 0.0
    high = 1.0
    if happened > 0:
        low = float(beta.ppf(TAIL, happened, num_seeds - happened + 1))
    if happened < num_seeds:
        high = float(beta.ppf(1 - TAIL, happened + 1, num_seeds - happened))
    return Interval(happened / num_seeds, low, high)


@dataclass(frozen=True)
class Verdict:
    """What the seeds say about a claim.

    `smallest_visible`: how far the mean would have had to lie from the threshold for a verdict,
    given the spread of these seeds.
    """

    says: str
    interval: Interval
    smallest_visible: float


def judge(
    values: Sequence[float],
    threshold: float,
    *,
    is_below: bool = False,
    is_share: bool = False,
    reported: float | None = None,
) -> Verdict:
    """The verdict on the claim that the mean of `values` is above `threshold`.

    `is_below`: the claim is that the mean is below it. `is_share`: every value is 1 or 0, and the
    mean is the share of seeds. `reported`: the mean that the paper found. If a value is NaN, the
    seeds cannot tell.

    >>> judge([0.10, 0.12, 0.11, 0.13], 0.0).says
    'shown'
    >>> judge([0.10, 0.12, 0.11, 0.13], 0.0, is_below=True).says
    'contradicted'
    >>> judge([-0.01, 0.02, 0.01, -0.03], 0.0).says
    'cannot tell'
    >>> judge([-0.01, 0.02, 0.01, -0.03], 0.0, reported=0.06).says
    'smaller than reported'
    """
    if any(math.isnan(value) for value in values):
        unknown = Interval(math.nan, -math.inf, math.inf)
        return Verdict(CANNOT_TELL, unknown, math.inf)
    interval = share_interval(values) if is_share else mean_interval(values)
    is_above = interval.low > threshold
    is_beneath = interval.high < threshold
    says = CANNOT_TELL
    if is_above or is_beneath:
        says = SHOWN if is_above != is_below else CONTRADICTED
    elif reported is not None:
        falls_short = interval.low > reported if is_below else interval.high < reported
        if falls_short:
            says = SMALLER
    half = max(interval.mean - interval.low, interval.high - interval.mean)
    return Verdict(says, interval, half)
