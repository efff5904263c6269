"""Intervals and verdicts of claims, compared with published and exact values."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binomtest, ttest_1samp

from flows.app.evidence import judge, mean_interval, share_interval


@pytest.mark.parametrize("happened", range(7))
def test_the_interval_of_a_share_is_the_exact_one_of_the_binomial_test(happened: int) -> None:
    interval = share_interval([1.0] * happened + [0.0] * (6 - happened))
    exact = binomtest(happened, 6).proportion_ci(0.95, method="exact")
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))
    assert interval.mean == pytest.approx(happened / 6)


def test_the_interval_of_a_mean_is_that_of_students_test() -> None:
    values = [0.31, 0.05, 0.22, 0.17, 0.40]
    interval = mean_interval(values)
    exact = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((exact.low, exact.high))


def test_two_seeds_have_a_wide_interval() -> None:
    """12.7 standard errors, which are 0.1, on either side."""
    interval = mean_interval([0.1, 0.3])
    assert (interval.low, interval.high) == pytest.approx((0.2 - 1.2706, 0.2 + 1.2706), abs=1e-4)


def test_a_single_seed_shows_nothing() -> None:
    verdict = judge([0.9], 0.0)
    assert verdict.says == "cannot tell"
    assert math.isinf(verdict.smallest_visible)
    assert str(verdict.interval) == "0.900"


def test_a_claim_needs_the_whole_interval_on_its_side() -> None:
    """The interval of 0.1, 0.2 and 0.3 ends at 0.2 ± 0.248."""
    values = [0.1, 0.2, 0.3]
    assert judge(values, -0.049).says == "shown"
    assert judge(values, -0.048).says == "cannot tell"
    assert judge(values, 0.448).says == "cannot tell"
    assert judge(values, 0.449).says == "contradicted"
    assert judge(values, 0.449, is_below=True).says == "shown"


def test_a_share_is_judged_by_its_own_interval() -> None:
    """All six seeds, for which Student's interval would have no width, are at least 0.541."""
    assert judge([1.0] * 6, 0.5, is_share=True).says == "shown"
    assert judge([1.0] * 6, 0.6, is_share=True).says == "cannot tell"


def test_a_claim_of_which_a_seed_says_nothing_cannot_be_told() -> None:
    assert judge([0.5, math.nan, 0.5], 0.0).says == "cannot tell"


def test_the_smallest_visible_effect_is_the_longer_half_of_the_interval() -> None:
    """Of five of six the exact interval is 0.359 to 0.996 around 0.833."""
    verdict = judge([1.0] * 5 + [0.0], 0.5, is_share=True)
    assert verdict.smallest_visible == pytest.approx(0.833 - 0.359, abs=1e-3)
