"""Scores of a policy on a benchmark: a mean and its standard error for every metric, over tasks."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tasks.stage import Rows, are_tables, check_tables, name_of, rows_for, stage
from warehouse.schemas import EVALUATIONS, Evaluation
from warehouse.store import Table

Measure = Callable[..., Iterable[tuple[str, float]]]
Protocol = dict[str, Any]


@stage(EVALUATIONS)
def evaluate(
    measure: Measure, /, *, policy: str, benchmark: str, protocol: Protocol | None = None, **given: Any
) -> Rows:
    """Yield one row per metric. `measure` makes (metric, value of one task) pairs from the rows of the tables in
    `given`, which it gets by parameter name; values that are not tables are settings. Only scores of the same
    `protocol` can be compared."""
    tables = {name: value for name, value in given.items() if are_tables(value)}
    check_tables(f"measure {name_of(measure)}", measure, tables)
    values: dict[str, list[float]] = defaultdict(list)
    for metric, value in measure(**{**given, **rows_for(measure, tables)}):
        values[metric].append(value)
    for metric, found in values.items():
        mean, error = mean_and_error(found)
        yield {
            "policy": policy,
            "benchmark": benchmark,
            "metric": metric,
            "n": len(found),
            "score": mean,
            "standard_error": error,
            "protocol": json.dumps(protocol, sort_keys=True) if protocol else None,
        }


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and the sample standard deviation over sqrt(n); None below two values.

    >>> mean_and_error([0.0, 1.0])
    (0.5, 0.5)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def scores_of(table: Table) -> dict[str, float]:
    """Metric -> score, where there is one."""
    return {row["metric"]: row["score"] for row in table.rows(Evaluation) if row["score"] is not None}
