"""Selection filters: one SQL query over stored tables, then limits. Every candidate is kept, or dropped with the first
reason that applies.

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

from tasks.stage import Rows, Tables, are_tables, rows_of, stage
from warehouse.query import run_sql
from warehouse.schemas import GROUPS, SELECTIONS, Row
from warehouse.store import Table

BOUND = re.compile(r"\$([a-z_]+)")


class Query:
    """A `.sql` file as a stage's parameter: its text is part of the recipe."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text(encoding="utf-8")

    @classmethod
    def beside(cls, module: str, name: str) -> Query:
        """`sql/NAME.sql` beside a module, by its `__file__`."""
        return cls(Path(module).parent / "sql" / f"{name}.sql")

    def recipe_identity(self) -> dict[str, str]:
        return {"file": self.path.name, "text": self.text}

    @property
    def bounds(self) -> set[str]:
        """The `$names` of its statements; comments do not count."""
        return set(BOUND.findall(re.sub(r"--.*", "", self.text)))


class Limit(NamedTuple):
    """Keep the first `most` candidates that pass a query, or the first `most` for each value of the column `per`."""

    most: int
    reason: str
    per: str | None = None


@stage(SELECTIONS)
def keep(query: Query, /, *, limits: Sequence[Limit] = (), earlier: tuple[Table, ...] = (), **given: Any) -> Rows:
    """Yield a row for every candidate: kept ones first, otherwise in the query's order.

    `query` sees each table of `given` under its name and every other value as the bound `$name`; it returns the table's
    columns and, for a candidate that fails, the `reason`. `limits` apply in turn to the candidates that pass; those
    that `earlier` selections kept count towards them.
    """
    yield from _selected(query, given, limits, [row for table in earlier for row in table.rows() if row["kept"]])


@stage(GROUPS)
def choose(query: Query, /, *, limits: Sequence[Limit] = (), **given: Any) -> Rows:
    """Yield a row for every group of rollouts that could be trained on, as `keep` does."""
    yield from _selected(query, given, limits, [])


def num_kept(selections: Tables) -> int:
    """The number of candidates that the selections keep."""
    return sum(row["kept"] for row in rows_of(selections))


def _selected(query: Query, given: dict[str, Any], limits: Sequence[Limit], already: list[Row]) -> Rows:
    tables = {name: _concatenated(value) for name, value in given.items() if are_tables(value)}
    bounds = {name: value for name, value in given.items() if name not in tables}
    if bounds.keys() != query.bounds:
        raise TypeError(f"{query.path.name} needs bounds {sorted(query.bounds)}; got {sorted(bounds)}")
    rows = run_sql(query.text, tables, bounds)
    for limit in limits:
        _apply(limit, rows, already)
    used = json.dumps({**bounds, **{limit.reason: limit.most for limit in limits}}, sort_keys=True)
    for row in sorted(rows, key=lambda row: row["reason"] is not None):
        yield {**row, "kept": row["reason"] is None, "bounds": used}


def _apply(limit: Limit, rows: list[Row], already: list[Row]) -> None:
    taken = Counter(row[limit.per] if limit.per else None for row in already)
    for row in rows:
        if row["reason"] is None:
            group = row[limit.per] if limit.per else None
            taken[group] += 1
            row["reason"] = limit.reason if taken[group] > limit.most else None


def _concatenated(tables: Tables) -> pa.Table:
    return tables.arrow if isinstance(tables, Table) else pa.concat_tables([t.arrow for t in tables])
