"""Selection filters: one SQL query over stored tables. Every candidate is kept or says the first reason why not.

`keep` selects tasks, `choose` groups of rollouts for an update.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tasks.stage import Rows, Tables, are_tables, stage
from warehouse.query import run_sql
from warehouse.schemas import GROUPS, SELECTIONS
from warehouse.store import Table

BOUND = re.compile(r"\$([a-z_]+)")


class Query:
    """A `.sql` file as a stage's parameter: its text is part of the recipe."""

    def __init__(self, path: Path) -> None:
        self.path, self.text = path, path.read_text(encoding="utf-8")

    def recipe_identity(self) -> dict[str, str]:
        return {"file": self.path.name, "text": self.text}

    @property
    def bounds(self) -> set[str]:
        """The `$names` of its statements; comments do not count."""
        return set(BOUND.findall(re.sub(r"--.*", "", self.text)))


@stage(SELECTIONS)
def keep(query: Query, /, *, earlier: tuple[Table, ...] = (), **given: Any) -> Rows:
    """Yield a row for every candidate.

    `query` sees each table of `given` under its name, every other value as the bound `$name`, and as `already` what
    `earlier` selections kept.
    """
    already = _concatenated(earlier) if earlier else SELECTIONS.arrow.empty_table()
    yield from _selected(query, given, already=already)


@stage(GROUPS)
def choose(query: Query, /, **given: Any) -> Rows:
    """Yield a row for every group of rollouts that could be trained on; tables and bounds as above."""
    yield from _selected(query, given)


def _selected(query: Query, given: dict[str, Any], **more: pa.Table) -> Rows:
    tables = {name: _concatenated(value) for name, value in given.items() if are_tables(value)}
    bounds = {name: value for name, value in given.items() if name not in tables}
    if bounds.keys() != query.bounds:
        raise TypeError(f"{query.path.name} needs bounds {sorted(query.bounds)}; got {sorted(bounds)}")
    for row in run_sql(query.text, {**tables, **more}, bounds):
        yield {**row, "bounds": json.dumps(bounds, sort_keys=True)}


def _concatenated(tables: Tables) -> pa.Table:
    return tables.arrow if isinstance(tables, Table) else pa.concat_tables([t.arrow for t in tables])
