"""DuckDB for a server over a store: the views of one run, or of all, over the files that are published now.

The views have the names and columns of those in `warehouse.query`, so a statement shown here may be repeated by
`selfplay sql`; but they name their files, so that nothing is searched for and other runs cost nothing.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb

from warehouse.catalogue import Catalogue
from warehouse.draft import hash_json
from warehouse.query import SQL, replies_view, view_of
from warehouse.schemas import TABLES, Row, Schema
from warehouse.store import Store
from warehouse.table import Table

ALL = ""  # stands for all runs
MEMORY_LIMIT = "2GB"
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """Rows of a statement, and the seconds that it took."""

    rows: list[Row]
    seconds: float


class Lake:
    """Answers statements over the views; safe to use from several threads."""

    def __init__(self, store: Store) -> None:
        self.store, self.catalogue = store, Catalogue(store)
        self._connection = duckdb.connect(config={"memory_limit": MEMORY_LIMIT})
        self._connection.execute("set parquet_metadata_cache = true")
        self._schemas: dict[str, str] = {}  # of a run
        self._sources: dict[tuple[str, str], str] = {}  # what a view reads, by run and table
        self._lock = threading.Lock()
        for schema in TABLES.values():
            empty = f"create table main.empty_{schema.name} as select *, '' as filename from empty_rows"
            self._connection.register("empty_rows", schema.arrow.empty_table())
            self._connection.execute(empty)

    def query(self, run: str, sql: str, parameters: dict[str, Any] | None = None) -> Answer:
        """Rows of one statement over the views of `run`. Raises duckdb.Error on bad SQL.

        A table that is published anew while it is read is read again.
        """
        started = time.perf_counter()
        rows = self._again(lambda: self._rows(run, sql, parameters))
        return Answer(rows, time.perf_counter() - started)

    def _rows(self, run: str, sql: str, parameters: dict[str, Any] | None) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(f'use memory."{self._schema(run)}"')
            result = cursor.execute(sql, parameters or None)
            names = [column[0] for column in result.description or []]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def _again(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (duckdb.IOException, duckdb.CatalogException, duckdb.InvalidInputException):
            self.catalogue.forget()
            return work()

    def tables(self, run: str) -> list[Table]:
        """The published tables of a run, or of all."""
        return [table for name in ([run] if run else self.catalogue.runs()) for table in self.catalogue.tables(name)]

    def _schema(self, run: str) -> str:
        """The database schema that holds the run's views of what is published now."""
        of_kind: defaultdict[str, list[Table]] = defaultdict(list)
        for table in self.tables(run):
            if table.has_rows and table.num_rows:
                of_kind[table.recipe["table"]].append(table)
        with self._lock, self._connection.cursor() as cursor:
            new = run not in self._schemas
            name = self._schemas.get(run, f"run {len(self._schemas)}")
            if new:
                cursor.execute(f'create schema if not exists "{name}"')
            cursor.execute(f'use memory."{name}"')
            for schema in TABLES.values():
                source = source_of(schema, of_kind[schema.name])
                if self._sources.get((run, schema.name)) != source:
                    cursor.execute(view_of(schema, source))
                    self._sources[run, schema.name] = source
            if new:
                cursor.execute(replies_view())
                for file in sorted((SQL / "views").glob("*.sql")):
                    cursor.execute(file.read_text(encoding="utf-8"))
                self._schemas[run] = name
        return name


def source_of(schema: Schema, tables: list[Table]) -> str:
    """What a view reads: the files as they are where all have this code's columns, else nulls for those they lack."""
    empty = f"main.empty_{schema.name}"
    if not tables:
        return empty
    files = ", ".join("'" + f"{t.folder}/{part}".replace("'", "''") + "'" for t in tables for part in t.parts)
    ours = hash_json(str(schema.arrow))
    if all(table.recipe.get("columns") == ours for table in tables):
        return f"read_parquet([{files}], filename = true, hive_partitioning = false)"
    read = f"select * from read_parquet([{files}], filename = true, hive_partitioning = false, union_by_name = true)"
    return f"({read} union all by name select * from {empty})"
