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

# makes (metric, value of one task) pairs from the rows of tables: see `evaluate`
Measure = Callable[..., Iterable[tuple[str, float]]]
Protocol = dict[str, Any]


@stage(EVALUATIONS)
def evaluate(
    measure: Measure,
    /,
    *,
    policy: str,
    benchmark: str,
    protocol: Protocol | None = None,
    **arguments: Any,
) -> Rows:
    """Yield one row per metric.

    `measure` makes (metric, value of one task) pairs. It receives `arguments` by parameter name:
    for a table, its rows; any other value is a setting. Only scores of the same `protocol` can be
    compared.

    Raises TypeError if the tables do not match the parameters of `measure`.
    """
    # A worked example: the pairs ("score", 1.0), ("score", 0.0), ("length", 7.0) become two rows,
    # score 0.5 +- 0.5 of n = 2 tasks, and length 7.0 of n = 1, without a standard error.
    tables = {name: value for name, value in arguments.items() if are_tables(value)}
    check_tables(f"measure {name_of(measure)}", measure, tables, arguments.keys() - tables.keys())
    values_of: dict[str, list[float]] = defaultdict(list)
    for metric, value in measure(**{**arguments, **rows_for(measure, tables)}):
        values_of[metric].append(value)
    for metric, values in values_of.items():
        mean, error = mean_and_error(values)
        yield {
            "policy": policy,
            "benchmark": benchmark,
            "metric": metric,
            "n": len(values),
            "score": mean,
            "standard_error": error,
            "protocol": json.dumps(protocol, sort_keys=True) if protocol else None,
        }


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error: sample standard deviation / sqrt(n), None if n < 2.

    >>> mean_and_error([0.0, 1.0])
    (0.5, 0.5)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def scores_of(table: Table) -> dict[str, float]:
    """The score of every metric that has one."""
    return {
        row["metric"]: row["score"] for row in table.rows(Evaluation) if row["score"] is not None
    }
