"""Selection filters: one SQL query over stored tables, then limits. Every candidate is kept, or
dropped with the first reason that applies.

`keep` selects tasks, `choose` groups of rollouts for an update.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from tasks.stage import Rows, Tables, are_tables, as_tables, rows_of, stage
from warehouse.query import run_sql
from warehouse.schemas import GROUPS, SELECTIONS, Row
from warehouse.store import Table

BOUND = re.compile(r"\$([a-z_]+)")


class Query:
    """A `.sql` file as a stage's parameter: its text is part of the recipe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")

    @classmethod
    def beside(cls, module: str, name: str) -> Query:
        """The query `sql/NAME.sql` beside a module, given the module's `__file__`."""
        return cls(Path(module).parent / "sql" / f"{name}.sql")

    def recipe_identity(self) -> dict[str, str]:
        """What a recipe records about a query: the file's name and its text."""
        return {"file": self.path.name, "text": self.text}

    @property
    def bounds(self) -> set[str]:
        """The `$names` in its statements; those in comments do not count."""
        return set(BOUND.findall(re.sub(r"--.*", "", self.text)))


class Limit(NamedTuple):
    """Keep the first `most` candidates that pass a query, or the first `most` for each value of
    the column `per`."""

    most: int
    reason: str
    per: str | None = None


@stage(SELECTIONS)
def keep(
    query: Query,
    /,
    *,
    limits: Sequence[Limit] = (),
    earlier: tuple[Table, ...] = (),
    **arguments: Any,
) -> Rows:
    """Yield a row for every candidate: kept ones first, otherwise in the query's order.

    `query` sees each table in `arguments` under its name, and every other value as the bound
    `$name`. It returns the columns of `selections` and, for a candidate that fails, the `reason`.
    `limits` apply in turn to the candidates that pass; candidates that `earlier` selections kept
    count towards them.

    Raises TypeError if the bounds are not exactly those of the query.
    """
    already_kept = [row for row in rows_of(earlier) if row["kept"]]
    yield from _selected(query, arguments, limits, already_kept)


@stage(GROUPS)
def choose(query: Query, /, *, limits: Sequence[Limit] = (), **arguments: Any) -> Rows:
    """Yield a row for every group of rollouts that could be trained on, as `keep` does."""
    yield from _selected(query, arguments, limits, already_kept=[])


def num_kept(selections: Tables) -> int:
    """The number of candidates that the selections keep."""
    return sum(row["kept"] for row in rows_of(selections))


def _selected(
    query: Query, arguments: dict[str, Any], limits: Sequence[Limit], already_kept: list[Row]
) -> Rows:
    tables = {name: _concatenated(value) for name, value in arguments.items() if are_tables(value)}
    bounds = {name: value for name, value in arguments.items() if name not in tables}
    if bounds.keys() != query.bounds:
        raise TypeError(
            f"{query.path.name} needs bounds {sorted(query.bounds)}; got {sorted(bounds)}"
        )
    candidates = run_sql(query.text, tables, bounds)
    for limit in limits:
        _apply(limit, candidates, already_kept)
    limits_used = {limit.reason: limit.most for limit in limits}
    bounds_used = json.dumps(bounds | limits_used, sort_keys=True)
    for row in sorted(candidates, key=lambda row: row["reason"] is not None):
        yield {**row, "kept": row["reason"] is None, "bounds": bounds_used}


def _apply(limit: Limit, candidates: list[Row], already_kept: list[Row]) -> None:
    """Give the limit's reason to the candidates that have passed so far but exceed it."""

    def group_of(row: Row) -> Any:
        if limit.per:
            return row[limit.per]
        return None

    num_taken = Counter(group_of(row) for row in already_kept)
    for row in candidates:
        if row["reason"] is not None:
            continue
        group = group_of(row)
        num_taken[group] += 1
        if num_taken[group] > limit.most:
            row["reason"] = limit.reason


def _concatenated(tables: Tables) -> pa.Table:
    if isinstance(tables, Table):
        return tables.arrow
    return pa.concat_tables([table.arrow for table in as_tables(tables)])
