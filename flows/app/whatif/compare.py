"""Compare stored rewards and selections with recomputed ones."""

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
REWARDS = {"rewards", "advantages"}
KEPT = {"selections": "task_id", "groups": "group_id"}  # the id column of the kept things
PLACE = {"place": pa.string(), "step": pa.int64(), "address": pa.string()}
REWARD_COLUMNS = pa.schema(
    {**PLACE, "rollout_id": pa.string(), "reward": pa.float64(), "advantage": pa.float64()}
)
KEPT_COLUMNS = pa.schema(
    {**PLACE, "id": pa.string(), "task_id": pa.string(), "kept": pa.bool_(), "reason": pa.string()}
)
TASK_COLUMNS = pa.schema({"task_id": pa.string(), "text": pa.string()})


def compare_rewards(before: Iterable[Table], instead: Mapping[str, Table]) -> list[Row]:
    """One row per phase and name of a rewards table.

    It contains how many rewards change, Spearman's rank correlation (None if either side has only
    one value), the means, and the numbers of unscorable rollouts and of advantages whose sign
    changes.
    """
    return _compare("rewards.sql", before, instead, REWARD_COLUMNS)


def compare_kept(
    before: Iterable[Table], instead: Mapping[str, Table], tasks: Iterable[Table]
) -> list[Row]:
    """One row for each task or group that is kept but would not be, or the reverse.

    `before` holds the stored selections or groups; `instead` holds tables that replace some of
    them, by address. A row has the text of its task, from `tasks`.
    """
    by_id = {
        row["task_id"]: row
        for table in tasks
        for row in table.arrow.select(TASK_COLUMNS.names).to_pylist()
    }
    texts = pa.Table.from_pylist(list(by_id.values()), TASK_COLUMNS)
    return _compare("kept.sql", before, instead, KEPT_COLUMNS, tasks=texts)


def count_kept(before: Iterable[Table], instead: Mapping[str, Table]) -> list[Row]:
    """One row for each iteration and phase that keeps tasks or groups: how many are kept, and how
    many would be. The arguments are as in `compare_kept`."""
    return _compare("num_kept.sql", before, instead, KEPT_COLUMNS)


def _compare(
    file: str,
    before: Iterable[Table],
    instead: Mapping[str, Table],
    columns: pa.Schema,
    tasks: pa.Table | None = None,
) -> Any:
    """The rows of a query over `columns` of the stored tables and of the tables after
    replacement."""
    before = list(before)
    now = [instead.get(table.address, table) for table in before]
    inputs = {
        "before": pa.concat_tables([_with_place(table, columns) for table in before]),
        "now": pa.concat_tables([_with_place(table, columns) for table in now]),
    }
    if tasks is not None:
        inputs["tasks"] = tasks
    return run_sql((HERE / file).read_text(encoding="utf-8"), inputs, {})


def _with_place(table: Table, columns: pa.Schema) -> pa.Table:
    """The columns of a schema, with the table's place, step and address.

    Columns that the table lacks are null.
    """
    rows = table.arrow
    place = {
        "place": str(replace(table.at, step=None)),
        "step": table.at.step,
        "address": table.address,
    }
    values = []
    for field in columns:
        name = field.name
        if name == "id":
            name = KEPT.get(table.schema.name, name)
        if name in place:
            values.append(pa.array([place[name]] * rows.num_rows, field.type))
        elif name in rows.column_names:
            values.append(rows[name])
        else:
            values.append(pa.nulls(rows.num_rows, field.type))
    return pa.Table.from_arrays(values, schema=columns)
