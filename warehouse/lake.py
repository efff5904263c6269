"""DuckDB for a server: views of one run, or of all runs of a store, over the files published now.

The views have the same names and columns as those in `warehouse.query`, so a statement shown here
also works in `selfplay sql`. Unlike those, they list their files: nothing is globbed, and other
runs cost nothing.
"""

from __future__ import annotations

import operator
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb

from warehouse.catalogue import Catalogue
from warehouse.draft import hash_json
from warehouse.query import SQL, replies_view, view_of
from warehouse.schemas import TABLES, Row, Schema
from warehouse.store import Store
from warehouse.table import Table

MEMORY_LIMIT = "2GB"
KEPT_NEAR = 16  # number of cached schemas over subsets of a run's tables
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The rows of a statement, and how long it took, in seconds."""

    rows: list[Row]
    seconds: float


class Lake:
    """Answers statements over the views. Thread-safe.

    `threads` limits the processors that DuckDB uses for one statement; by default it takes all.
    """

    def __init__(self, store: Store, threads: int | None = None) -> None:
        self.store = store
        self.catalogue = Catalogue(store)
        self._connection = duckdb.connect(config={"memory_limit": MEMORY_LIMIT})
        if threads is not None:
            self._connection.execute(f"set threads = {threads}")
        self._connection.execute("set parquet_metadata_cache = true")
        # run -> tables listed, schema's name
        self._seen: dict[str, tuple[list[list[Table]], str]] = {}
        self._orphaned: dict[str, set[str]] = {}  # run -> its orphaned updates
        self._near: dict[str, str] = {}  # hash of some tables -> their schema's name
        self._sources: dict[str, dict[str, str]] = {}  # schema -> table -> what its view reads
        self._lock = threading.Lock()
        for schema in TABLES.values():
            empty = (
                f"create table main.empty_{schema.name} as select *, '' as filename from empty_rows"
            )
            self._connection.register("empty_rows", schema.arrow.empty_table())
            self._connection.execute(empty)

    def query(
        self,
        run: str,
        sql: str,
        parameters: dict[str, Any] | None = None,
        near: tuple[Table, ...] | None = None,
    ) -> Answer:
        """The rows of one statement over the views of `run`, or of the tables `near` if given.

        `near` saves time, since DuckDB spends some on every file, even one that yields no row.
        Raises duckdb.Error on bad SQL. Retries once if a table is republished while it is read.
        """
        started = time.perf_counter()
        rows = self._again(lambda: self._rows(run, sql, parameters, near))
        return Answer(rows, time.perf_counter() - started)

    def _rows(
        self, run: str, sql: str, parameters: dict[str, Any] | None, near: tuple[Table, ...] | None
    ) -> list[Row]:
        with self._connection.cursor() as cursor:
            schema = self._schema(run) if near is None else self._schema_of(near)
            cursor.execute(f'use memory."{schema}"')
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
        """The published tables of a run, or of all runs, without orphaned updates."""
        runs = self._runs(run)
        orphaned = {address for name in runs for address in self.store.orphaned(name)}
        tables = [table for name in runs for table in self.catalogue.tables(name)]
        return [table for table in tables if table.address not in orphaned]

    def _runs(self, run: str) -> list[str]:
        """A run, or all runs for ""."""
        if run:
            return [run]
        return self.catalogue.runs()

    def _schema(self, run: str) -> str:
        """The database schema with the run's views over what is published now."""
        runs = self._runs(run)
        listings = [self.catalogue.tables(name) for name in runs]
        # updates that the flow no longer reaches belong to no policy: no view counts them
        orphaned = {address for name in runs for address in self.store.orphaned(name)}
        with self._lock:
            seen, name = self._seen.get(run, ([], f"run {len(self._seen)}"))
            # the catalogue returns the same list until it lists a run again
            is_same = len(seen) == len(listings) and all(map(operator.is_, seen, listings))
            if not is_same or not seen or orphaned != self._orphaned.get(run):
                tables = [table for listing in listings for table in listing]
                self._fill(name, [table for table in tables if table.address not in orphaned])
                self._seen[run] = (listings, name)
                self._orphaned[run] = orphaned
        return name

    def _schema_of(self, tables: tuple[Table, ...]) -> str:
        """The schema over some tables of a run.

        The last few are cached, since a page runs several statements.
        """
        key = hash_json([[table.address, table.content_hash] for table in tables])
        with self._lock:
            if key not in self._near:
                self._near[key] = f"near {key}"
                self._fill(self._near[key], tables)
            while len(self._near) > KEPT_NEAR:
                with self._connection.cursor() as cursor:
                    oldest = self._near.pop(next(iter(self._near)))
                    cursor.execute(f'drop schema "{oldest}" cascade')
            return self._near[key]

    def _fill(self, name: str, tables: Iterable[Table]) -> None:
        """Create the views of a schema, or replace those whose files changed."""
        of_kind: defaultdict[str, list[Table]] = defaultdict(list)
        for table in tables:
            if table.has_rows and table.num_rows:
                of_kind[table.recipe["table"]].append(table)
        with self._connection.cursor() as cursor:
            cursor.execute(f'create schema if not exists "{name}"')
            cursor.execute(f'use memory."{name}"')
            before = self._sources.get(name, {})
            sources = {
                schema.name: source_of(schema, of_kind[schema.name]) for schema in TABLES.values()
            }
            for kind, source in sources.items():
                if before.get(kind) != source:
                    cursor.execute(view_of(TABLES[kind], source))
            if not before:
                cursor.execute(replies_view())
                for file in sorted((SQL / "views").glob("*.sql")):
                    cursor.execute(file.read_text(encoding="utf-8"))
            if name.startswith("run "):
                self._sources[name] = sources


def source_of(schema: Schema, tables: list[Table]) -> str:
    """The SQL that a view selects from.

    It reads the files as they are if all have this code's columns, else with nulls in missing
    columns.
    """
    empty = f"main.empty_{schema.name}"
    if not tables:
        return empty
    paths = [f"{table.folder}/{part}" for table in tables for part in table.parts]
    files = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    ours = hash_json(str(schema.arrow))
    if all(table.recipe.get("columns") == ours for table in tables):
        return f"read_parquet([{files}], filename = true, hive_partitioning = false)"
    read = (
        f"select * from read_parquet([{files}], filename = true, hive_partitioning = false,"
        " union_by_name = true)"
    )
    return f"({read} union all by name select * from {empty})"
