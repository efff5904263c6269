"""The data of a report: the tables of one run up to an iteration, queried with the statements of
`warehouse/sql/report`.

A report is made after every iteration and reads one run only, so its time does not grow with the
number of runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tasks.reports.statement import parameters_of, shared_statement
from warehouse.lake import Lake
from warehouse.schemas import Row
from warehouse.store import Store, Table

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
        """Rows of `warehouse/sql/report/<name>.sql`, which may name `$run`, `$iteration`, `$made`
        and `parameters`."""
        sql = shared_statement(name)
        known = {"run": self.run, "iteration": self.iteration, "made": self.made, **parameters}
        return self.ask(name, sql, parameters_of(sql, known))


@contextmanager
def open_source(store: Store, run: str, iteration: int) -> Iterator[Source]:
    """A run up to an iteration, through the views that the viewer and `selfplay sql` have."""
    lake = Lake(store)
    tables = tables_until(store.tables(run), iteration)

    def ask(name: str, sql: str, parameters: dict[str, Any]) -> list[Row]:
        return lake.query(run, sql, parameters, near=tables).rows

    yield Source(run, iteration, described(tables), ask)


def tables_until(tables: Iterator[Table] | Sequence[Table], iteration: int) -> tuple[Table, ...]:
    """The tables up to an iteration, and those outside any."""
    return tuple(t for t in tables if t.at.iteration is None or t.at.iteration <= iteration)


def made_until(tables: Iterator[Table] | Sequence[Table], iteration: int) -> tuple[Table, ...]:
    """Those of `tables_until` that stages made: no labels by people."""
    return tuple(t for t in tables_until(tables, iteration) if not t.holds_labels)


def described(tables: Sequence[Table]) -> str:
    """The parameter `$made`: one JSON object a table, with its place and what making it cost."""
    return json.dumps([_description(table) for table in tables if not table.holds_labels])


def _description(table: Table) -> Row:
    recipe = table.recipe
    return {
        "run": table.at.run,
        "iteration": table.at.iteration,
        "phase": table.at.phase,
        "kind": table.at.table,
        "stage": recipe["stage"].rsplit(".", 1)[-1].lstrip("_"),
        "num_rows": table.num_rows,
        "started_at": recipe.get("started_at", 0.0),
        "seconds": recipe.get("seconds", 0.0),
        "gpu_s": recipe.get("gpu_s"),
        "tokens": recipe.get("tokens"),
        "peak_memory_mb": recipe.get("peak_memory_mb"),
    }
