"""Rules that score an answer to an item of a benchmark: metrics by name, each 0..1.

A scorer gets a row of `items` and the text of an answer. It runs where it can be killed
(`tasks.benchmarks.item_scores`); a ValueError that it raises is the reason why there is no score.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tasks.scorers import rules, short, tables
from warehouse.schemas import Row


@dataclass(frozen=True)
class Scorer:
    """`score` returns all of `metrics`; the first is the benchmark's score if the protocol names
    none."""

    metrics: tuple[str, ...]
    score: Callable[[Row, str], dict[str, float]]


SCORERS = {
    "short": Scorer(("em", "f1", "cover"), short.score),
    "mathematics": Scorer(("accuracy",), rules.same_mathematics),
    "choice": Scorer(("accuracy",), rules.same_choice),
    "bbeh": Scorer(("accuracy",), rules.same_bbeh),
    "number": Scorer(("accuracy",), rules.same_number),
    "docmath": Scorer(("accuracy", "strict"), rules.same_report_number),
    "tatqa": Scorer(("em", "f1"), tables.score),
    "none": Scorer((), rules.nothing),
}
