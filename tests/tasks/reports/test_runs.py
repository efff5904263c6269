"""Groups of runs side by side: what is drawn, and which runs are compared."""

from __future__ import annotations

from tasks.reports import runs
from tasks.reports.runs import differences, is_comparable, report_runs
from tests.support.rows import publish, row


def test_a_benchmark_with_a_single_point_is_not_drawn():
    before = {"group": "whole", "iteration": 0, "score": 0.25}
    assert not is_comparable([before, before])
    assert is_comparable([before, {**before, "iteration": 1}])
    assert is_comparable([before, {**before, "group": "no Memory"}])


def test_a_run_that_stands_for_several_seeds_is_compared_with_each_of_them(store, monkeypatch):
    """As of a variant that no seed changes."""
    for run in ("first-0", "first-1", "other"):
        for iteration in (0, 1):
            score = row("evaluations", benchmark="b", metric="score", n=4, score=0.5)
            publish(store.run(run).iteration(iteration), "evaluations", score)
    drawn = []
    monkeypatch.setattr(runs, "figures", lambda benchmark, rows: drawn.extend(rows) or [])
    groups = {"first": {"0": "first-0", "1": "first-1"}, "other": {"0": "other", "1": "other"}}
    report_runs(store, "two", groups, {})
    places = {(one["group"], one["pair"], one["run"]) for one in drawn}
    assert places == {
        (group, pair, run) for group, of in groups.items() for pair, run in of.items()
    }


def test_runs_of_one_seed_are_compared_with_each_other():
    """The first group has 0.5 and 0.75 with seeds 0 and 1, the other 0.375 with seed 1."""
    scores = [("first", "0", 0.5), ("first", "1", 0.75), ("other", "1", 0.375), ("alone", "2", 0.5)]
    rows = [{"group": group, "pair": pair, "score": score} for group, pair, score in scores]
    assert differences(rows, first="first") == {"other": (-0.375, 0.0)}
