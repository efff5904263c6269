"""The data of a report: the tables of one run up to an iteration, queried with `warehouse/sql/report`.

The views of `warehouse.query` span all runs of a store. A report is made after every iteration and reads one run only,
so its time does not grow with the number of runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.query import SQL, in_memory, replies_view
from warehouse.schemas import DOCUMENTS, PROMPTS, ROLLOUTS, TABLES, Row, Schema
from warehouse.store import Store, Table

ADDRESS = pa.schema(
    [
        ("run", pa.string()),
        ("iteration", pa.int32()),
        ("phase", pa.string()),
        ("step", pa.int32()),
        ("kind", pa.string()),
        ("label", pa.string()),
    ]
)
MADE = pa.schema(
    [
        *ADDRESS,
        ("stage", pa.string()),
        ("num_rows", pa.int64()),
        ("started_at", pa.float64()),
        ("seconds", pa.float64()),
        ("gpu_s", pa.float64()),
        ("tokens", pa.int64()),
        ("peak_memory_mb", pa.float64()),
    ]
)
UNREAD = ("samples", "batches", "policies")  # no query of a report needs their rows
WIDE = {ROLLOUTS.name: ("turns", "reply"), PROMPTS.name: ("messages",)}  # read for examples only


@dataclass(frozen=True)
class Source:
    """A run's tables up to an iteration, and the run and iteration that its queries are given."""

    connection: duckdb.DuckDBPyConnection
    run: str
    iteration: int

    def rows(self, name: str, **parameters: Any) -> list[Row]:
        """Rows of `warehouse/sql/report/<name>.sql`; it is given `$run`, and `$iteration` unless others are named."""
        sql = (SQL / "report" / f"{name}.sql").read_text(encoding="utf-8")
        result = self.connection.execute(sql, {"run": self.run, **(parameters or {"iteration": self.iteration})})
        names = [column[0] for column in result.description or []]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


@contextmanager
def open_source(store: Store, run: str, iteration: int) -> Iterator[Source]:
    """The tables of a run up to an iteration, named like the store's views; `<name>_wide` has wide columns too."""
    tables = tables_until(store, run, iteration)
    with in_memory() as connection:
        made = [{**row, **_recipe_row(table)} for table, row in tables]
        connection.register("made", pa.Table.from_pylist(made, schema=MADE))
        of_kind: dict[str, list[tuple[Table, Row]]] = defaultdict(list)
        for table, row in tables:
            if table.has_rows:
                of_kind[row["kind"]].append((table, row))
        for schema in TABLES.values():
            if schema.name not in UNREAD:
                _load(connection, schema, of_kind[schema.name])
        connection.execute(replies_view())
        connection.execute((SQL / "views" / "rollouts.sql").read_text(encoding="utf-8"))
        yield Source(connection, run, iteration)


def tables_until(store: Store, run: str, iteration: int) -> list[tuple[Table, Row]]:
    """The tables of a run up to an iteration, each with the parts of its address."""
    placed = [(table, address_row(table)) for table in store.tables(run)]
    return [(table, row) for table, row in placed if row["iteration"] is None or row["iteration"] <= iteration]


def address_row(table: Table) -> Row:
    """The parts of a table's address. The table's name becomes `kind`, since `table` is a reserved word in SQL."""
    parts = asdict(table.at)
    return {"kind": parts.pop("table"), **parts}


def _recipe_row(table: Table) -> Row:
    recipe = table.recipe
    return {
        "stage": recipe["stage"].rsplit(".", 1)[-1].lstrip("_"),
        "num_rows": table.num_rows,
        "started_at": recipe["started_at"],
        "seconds": recipe["seconds"],
        **{name: recipe.get(name) for name in ("gpu_s", "tokens", "peak_memory_mb")},
    }


def _load(connection: duckdb.DuckDBPyConnection, schema: Schema, tables: list[tuple[Table, Row]]) -> None:
    """Make the table `<name>`; wide columns stay in Parquet, in the view `<name>_wide`."""
    name = schema.name
    if tables:
        placed = [{"filename": str(table.folder / part), **row} for table, row in tables for part in table.parts]
        files = [row["filename"] for row in placed]
        places = pa.Table.from_pylist(placed, schema=pa.schema([("filename", pa.string()), *ADDRESS])).drop(["kind"])
        source = connection.read_parquet(files, filename=True, union_by_name=True, hive_partitioning=False)
    else:
        places = pa.schema([("filename", pa.string()), *ADDRESS]).empty_table().drop(["kind"])
        source = connection.from_arrow(schema.arrow.empty_table().append_column("filename", pa.array([], pa.string())))
    connection.register(f"{name}_places", places)
    source.create_view(f"{name}_parts")
    connection.execute(
        f"create view {name}_wide as "
        f"select places.* exclude (filename), parts.* exclude (filename) from {name}_parts as parts "
        f"join {name}_places as places using (filename)"
    )
    narrow = f"exclude ({', '.join(WIDE[name])})" if name in WIDE else ""
    suffix = "_table" if name == ROLLOUTS.name else ""
    kind = "view" if schema is DOCUMENTS else "table"  # a corpus may not fit in memory
    connection.execute(f"create {kind} {name}{suffix} as select * {narrow} from {name}_wide")
