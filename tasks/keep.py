"""Selection filters: one SQL query over stored tables. Every candidate is kept or says the first reason why not.

`keep` selects tasks, `choose` groups of rollouts for an update.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.stage import Rows, Tables, stage
from warehouse.query import run_sql
from warehouse.schemas import GROUPS, SELECTIONS
from warehouse.store import Table


class Query:
    """A `.sql` file as a stage's parameter: its text is part of the recipe."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text(encoding="utf-8")

    def recipe_identity(self) -> dict[str, str]:
        return {"file": self.path.name, "text": self.text}


@stage(SELECTIONS)
def keep(query: Query, tables: dict[str, Tables], *, earlier: tuple[Table, ...] = (), bounds: dict[str, Any]) -> Rows:
    """Yield a row for every candidate.

    `query` sees `tables` by name, `$name` for each bound, and as `already` what earlier selections kept.
    """
    found = {name: _concatenated(t) for name, t in tables.items()}
    already = _concatenated(earlier) if earlier else SELECTIONS.arrow.empty_table()
    for row in run_sql(query.text, {**found, "already": already}, bounds):
        yield {**row, "bounds": json.dumps(bounds, sort_keys=True)}


@stage(GROUPS)
def choose(query: Query, tables: dict[str, Tables], *, bounds: dict[str, Any]) -> Rows:
    """Yield a row for every group of rollouts that could be trained on; `query` sees `tables` and `bounds` as above."""
    for row in run_sql(query.text, {name: _concatenated(t) for name, t in tables.items()}, bounds):
        yield {**row, "bounds": json.dumps(bounds, sort_keys=True)}


def _concatenated(tables: Tables) -> pa.Table:
    return tables.arrow if isinstance(tables, Table) else pa.concat_tables([t.arrow for t in tables])
