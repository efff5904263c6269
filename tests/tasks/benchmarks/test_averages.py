"""Averages over benchmarks, worked by hand."""

import json

import pytest

from tasks.benchmarks.averages import average
from tests.support.rows import publish, row
from warehouse.store import Place

AVERAGES = {"sums": ("a", "b"), "overall": ("sums", "c")}


def averaged(place: Place, **scores: float | None) -> dict[str, tuple]:
    """Average to (score, standard error, members), of benchmarks with an error of 0.03."""
    tables = [
        publish(
            place,
            "evaluations",
            row("evaluations", benchmark=f"{name}-mae", metric="score", score=score,
                standard_error=0.03, protocol=json.dumps({"items": name})),
            row("evaluations", benchmark=f"{name}-mae", metric="readable", score=1.0),
            label=name,
        )
        for name, score in scores.items()
    ]  # fmt: skip
    table = average(
        place,
        tables,
        policy="p",
        benchmark="averages",
        averages=AVERAGES,
        names={f"{name}-mae": name for name in scores},
    )
    return {r["metric"]: (r["score"], r["standard_error"], r["n"]) for r in table.rows()}


def test_an_average_counts_as_one_member_of_the_next(place):
    """sums: (0.2 + 0.4) / 2 = 0.3, overall: (0.3 + 0.9) / 2 and not 1.5 / 3.

    Errors: sqrt(2 * 0.03^2) / 2 = 0.0212, then sqrt(0.0212^2 + 0.03^2) / 2 = 0.0184.
    """
    found = averaged(place, a=0.2, b=0.4, c=0.9)
    assert found["sums"] == pytest.approx((0.3, 0.021213, 2), abs=1e-6)
    assert found["overall"] == pytest.approx((0.6, 0.018371, 2), abs=1e-6)


def test_an_average_that_lacks_members_says_so_and_is_no_member_of_another(place):
    found = averaged(place, a=0.2, c=0.9)
    assert {name: score for name, (score, *_) in found.items()} == {
        "sums, 1 of 2": 0.2,
        "overall, 1 of 2": 0.9,
    }


def test_a_member_may_be_the_items_of_one_kind(place):
    table = publish(
        place,
        "evaluations",
        row("evaluations", benchmark="a", metric="score", score=0.2),
        row("evaluations", benchmark="a", metric="score_Multi-Document QA", score=0.8),
    )
    (found,) = average(
        place,
        [table],
        policy="p",
        benchmark="averages",
        averages={"overall": ("a/Multi-Document QA",)},
        names={"a": "a"},
    ).rows()
    assert (found["metric"], found["score"]) == ("overall", 0.8)


def test_a_benchmark_without_a_score_is_no_member(place):
    found = averaged(place, a=None, b=0.4)
    assert {name: score for name, (score, *_) in found.items()} == {"sums, 1 of 2": 0.4}
