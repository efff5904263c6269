"""The data of a report: the tables of one run up to an iteration, queried with the statements of
`warehouse/sql/report`.

A report is made after every iteration and reads only one run, so the time it takes does not grow
with the number of runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tasks.reports.draw import by
from tasks.reports.statement import parameters_of, shared_statement
from warehouse.lake import Lake
from warehouse.schemas import Row
from warehouse.store import Store, Table

PAUSE_S = 60.0  # a longer time between two stages means a stopped run, or a stage rerun later
# the rows of a statement, given its name, its text and its parameters
Ask = Callable[[str, str, dict[str, Any]], list[Row]]


@dataclass(frozen=True)
class Source:
    """A run up to an iteration. `made` describes its tables (see `described`)."""

    run: str
    iteration: int
    made: str
    ask: Ask

    def rows(self, name: str, **parameters: Any) -> list[Row]:
        """Rows of `warehouse/sql/report/<name>.sql`, which may use `$run`, `$iteration`, `$made`
        and `parameters`."""
        sql = shared_statement(name)
        known = {"run": self.run, "iteration": self.iteration, "made": self.made, **parameters}
        return self.ask(name, sql, parameters_of(sql, known))


@contextmanager
def open_source(
    store: Store, run: str, iteration: int, lake: Lake | None = None
) -> Iterator[Source]:
    """A run up to an iteration, with the views of the viewer and `selfplay sql`. Pass a `lake`
    shared with other queries to reuse the files that it has already read."""
    lake = lake or Lake(store)
    tables = tables_until(store.reached(run), iteration)

    def ask(name: str, sql: str, parameters: dict[str, Any]) -> list[Row]:
        return lake.query(run, sql, parameters, near=tables).rows

    yield Source(run, iteration, described(tables), ask)


def tables_until(tables: Iterator[Table] | Sequence[Table], iteration: int) -> tuple[Table, ...]:
    """The tables up to an iteration, and those outside any iteration."""
    return tuple(t for t in tables if t.at.iteration is None or t.at.iteration <= iteration)


def made_until(tables: Iterator[Table] | Sequence[Table], iteration: int) -> tuple[Table, ...]:
    """The tables of `tables_until` that stages made, without people's labels."""
    return tuple(t for t in tables_until(tables, iteration) if not t.holds_labels)


def described(tables: Sequence[Table]) -> str:
    """The parameter `$made`: a JSON object per table, with its place and what making it cost."""
    return json.dumps([_description(table) for table in tables if not table.holds_labels])


def _description(table: Table) -> Row:
    recipe = table.recipe
    return {
        "run": table.at.run,
        "iteration": table.at.iteration,
        "phase": table.at.phase,
        "step": table.at.step,
        "kind": table.at.table,
        "stage": recipe["stage"].rsplit(".", 1)[-1].lstrip("_"),
        "num_rows": table.num_rows,
        "started_at": recipe.get("started_at", 0.0),
        "seconds": recipe.get("seconds", 0.0),
        "gpu_s": recipe.get("gpu_s"),
        "tokens": recipe.get("tokens"),
        "peak_memory_mb": recipe.get("peak_memory_mb"),
    }


def placed(rows: dict[str, list[Row]], made: str) -> dict[str, list[Row]]:
    """The rows of every query; those of a step also get its `span`: when its stages began and
    ended, in iterations.

    Phases run one after another: if the first step of iteration 2 took the first quarter of the
    iteration's time, its span is (1.0, 1.25). Pauses of more than a minute do not count.
    """
    spans = _spans(json.loads(made))

    def with_span(row: Row) -> Row:
        span = spans.get((row.get("iteration"), row.get("phase"), row.get("step")))
        if span is None or row.get("step") is None:
            return row
        return {**row, "span": span}

    return {name: [with_span(row) for row in some] for name, some in rows.items()}


def _spans(tables: list[Row]) -> dict[tuple[Any, ...], tuple[float, float]]:
    """When each step began and ended, in iterations, by iteration, phase and step."""
    spans: dict[tuple[Any, ...], tuple[float, float]] = {}
    for iteration, some in by([t for t in tables if t["iteration"]], "iteration").items():
        worked = _worked(some)
        whole = max(end for _, end in worked)
        if not whole:
            continue
        for table, (begin, end) in zip(some, worked, strict=True):
            key = (iteration, table["phase"], table["step"])
            first, last = spans.get(key, (float(iteration), 0.0))
            begin = iteration - 1 + begin / whole
            end = iteration - 1 + end / whole
            spans[key] = (min(first, begin), max(last, end))
    return spans


def _worked(tables: list[Row]) -> list[tuple[float, float]]:
    """When each table's stage began and ended, in seconds of work since the first one began.

    >>> stages = [{"started_at": 5.0, "seconds": 2.0}, {"started_at": 107.0, "seconds": 1.0}]
    >>> _worked(stages)
    [(0.0, 2.0), (2.0, 3.0)]
    """
    order = sorted(range(len(tables)), key=lambda i: tables[i]["started_at"])
    spans = [(0.0, 0.0)] * len(tables)
    paused = tables[order[0]]["started_at"]
    until = paused
    for i in order:
        start = tables[i]["started_at"]
        if start - until > PAUSE_S:
            paused += start - until
        spans[i] = (start - paused, start + tables[i]["seconds"] - paused)
        until = max(until, start + tables[i]["seconds"])
    return spans
