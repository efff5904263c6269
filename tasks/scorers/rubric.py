"""The score that the verdicts on a rubric's criteria add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence


def share_met(verdict_K: Sequence[int | None], weight_K: Sequence[float]) -> float:
    """The sum of the weights of the criteria met over that of all positive weights, at least 0.

    A criterion of negative weight is a pitfall: an answer that avoids it loses nothing. HealthBench
    (arXiv 2505.08775) does the same, but its script keeps negative shares and clips only their
    mean. Without such criteria this is eq. 1 of SCOPE, arXiv 2605.31433. A missing verdict counts
    as not met. Raises ValueError if no weight is positive.

    >>> share_met([1, 0, 1, None], [1, 1, 1, 1])
    0.5
    >>> share_met([1, 1, 0], [5, 3, -2]), share_met([1, 1, 1], [5, 3, -2])
    (1.0, 0.75)
    """
    most = math.fsum(weight for weight in weight_K if weight > 0)
    if not most:
        raise ValueError(f"a rubric needs a criterion of positive weight, not {list(weight_K)}")
    earned = math.fsum(
        weight for weight, verdict in zip(weight_K, verdict_K, strict=True) if verdict
    )
    return max(0.0, earned / most)
