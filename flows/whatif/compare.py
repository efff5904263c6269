"""Compare stored rewards and selections with what they would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from warehouse.query import run_sql
from warehouse.schemas import Row
from warehouse.table import Table

HERE = Path(__file__).parent
REWARDS = {"scores", "rewards"}
KEPT = {"selections": "task_id", "groups": "group_id"}  # what is kept or not, by its id
PLACE = {"place": pa.string(), "address": pa.string()}
PAID = pa.schema({**PLACE, "rollout_id": pa.string(), "total": pa.float64(), "advantage": pa.float64()})
KEEPING = pa.schema({**PLACE, "id": pa.string(), "task_id": pa.string(), "kept": pa.bool_(), "reason": pa.string()})
TASK = pa.schema({"task_id": pa.string(), "text": pa.string()})


def compare_rewards(before: Iterable[Table], instead: Mapping[str, Table]) -> list[Row]:
    """One row for the rewards of one name in a phase: how many change, Spearman's rank correlation (None if either side
    has only one value), means, unscorable rollouts, and advantages whose sign changes."""
    return _asked("rewards.sql", before, instead, PAID)


def compare_kept(before: Iterable[Table], instead: Mapping[str, Table], tasks: Iterable[Table]) -> list[Row]:
    """One row for each task or group that is kept and would not be, or the reverse, with the text of its task."""
    texts = {row["task_id"]: row for table in tasks for row in table.arrow.select(TASK.names).to_pylist()}
    return _asked("kept.sql", before, instead, KEEPING, tasks=pa.Table.from_pylist(list(texts.values()), TASK))


def _asked(file: str, before: Iterable[Table], instead: Mapping[str, Table], of: pa.Schema, **more: pa.Table) -> Any:
    sides = {"before": before, "now": [instead.get(table.address, table) for table in before]}
    tables = {name: pa.concat_tables([_placed(table, of) for table in side]) for name, side in sides.items()}
    return run_sql((HERE / file).read_text(encoding="utf-8"), {**tables, **more}, {})


def _placed(table: Table, of: pa.Schema) -> pa.Table:
    """The columns of a schema, with the table's place and address; columns that the table lacks are null."""
    rows, given = table.arrow, {"id": KEPT.get(table.schema.name)}
    place = {"place": str(replace(table.at, step=None)), "address": table.address}
    columns = []
    for field in of:
        name = given.get(field.name) or field.name
        if field.name in place:
            columns.append(pa.array([place[field.name]] * rows.num_rows, field.type))
        else:
            columns.append(rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=of)
