"""Groups of runs side by side: what is drawn, and which runs are compared."""

from __future__ import annotations

from tasks.reports.runs import differences, is_comparable


def test_a_benchmark_with_a_single_point_is_not_drawn():
    before = {"group": "whole", "iteration": 0, "score": 0.25}
    assert not is_comparable([before, before])
    assert is_comparable([before, {**before, "iteration": 1}])
    assert is_comparable([before, {**before, "group": "no Memory"}])


def test_runs_of_one_seed_are_compared_with_each_other():
    """The first group has 0.5 and 0.75 with seeds 0 and 1, the other 0.375 with seed 1."""
    scores = [("first", "0", 0.5), ("first", "1", 0.75), ("other", "1", 0.375), ("alone", "2", 0.5)]
    rows = [{"group": group, "pair": pair, "score": score} for group, pair, score in scores]
    assert differences(rows, first="first") == {"other": (-0.375, 0.0)}
