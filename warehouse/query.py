"""DuckDB over every table of every run: one view per table, directly over published files.

The views live in `<store>/warehouse.duckdb`, so plain `duckdb -readonly
data/store/warehouse.duckdb` sees what `selfplay sql` sees.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
import pyarrow as pa

from warehouse.address import Address
from warehouse.draft import PARTS, hash_json
from warehouse.listed_views import EMPTY, have_columns, needed, part_files, source_of
from warehouse.schemas import TABLES, ReplyColumns, Row, Schema
from warehouse.store import Store

SQL = Path(__file__).parent / "sql"
DATABASE = "warehouse.duckdb"
STAMP = "warehouse.version"
VIEW = re.compile(r"(?m)^create view (\w+) as$")
WILD = re.compile(r"[*?\[]")  # characters with a meaning in a glob pattern

Ask = Callable[[str, dict[str, Any]], list[Row]]  # a query and its parameters


def connect(root: Path | str, statement: str = "") -> duckdb.DuckDBPyConnection:
    """A read-only connection with all views; in memory if the store's folder is read-only.

    The views that `statement` names list the files that exist now and do not search for them, which
    is much faster over many runs. Writing all views takes as long as that search, so if
    `warehouse.duckdb` is not that of this code, only the named views exist.
    """
    store = Store(root)
    made_of = _made_of()
    names = needed(statement, made_of)
    if names and not _is_current(store):
        connection = duckdb.connect()
        for sql in _view_files():
            if not VIEW.search(sql):  # macros
                connection.execute(sql)
    else:
        connection = _connect(store)
    _list_files(connection, store, {name: made_of[name] for name in names})
    return connection


def _list_files(
    connection: duckdb.DuckDBPyConnection, store: Store, made_of: dict[str, str]
) -> None:
    """Create views over the files that exist now.

    `made_of` has the SQL of each view by name, "" for that of a table.
    """
    kinds = {_name_of(schema): schema for schema in TABLES.values()}
    files = part_files(store.runs, {kinds[name].name for name in made_of if name in kinds})
    for name, sql in made_of.items():
        if name in kinds:
            sql = view_of(kinds[name], _source(connection, kinds[name], files))
        connection.execute(re.sub(r"create (or replace )?view", "create temp view", sql, count=1))


def _source(
    connection: duckdb.DuckDBPyConnection, schema: Schema, files: dict[str, list[str]]
) -> str:
    its_files = files.get(schema.name, [])
    if its_files and have_columns(schema, its_files):
        return source_of(its_files, empty=None)
    empty = f"empty_{schema.name}"
    connection.register("no_rows", schema.arrow.empty_table())
    connection.execute(f"create temp table {empty} as select *, '' as filename from no_rows")
    connection.unregister("no_rows")
    return source_of(its_files, empty) if its_files else empty


def _connect(store: Store) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(write_views(store)), read_only=True)
    except (OSError, duckdb.IOException):
        if os.access(store.root, os.W_OK):  # the file is damaged, but holds only views
            (store.root / STAMP).unlink(missing_ok=True)
            return duckdb.connect(str(write_views(store)), read_only=True)
    connection = duckdb.connect()
    for statement in _views(store):
        connection.execute(statement)
    return connection


def write_views(store: Store) -> Path:
    """Write `warehouse.duckdb`, which holds only views.

    It is replaced atomically if a view changed.
    """
    path = store.root / DATABASE
    if _is_current(store):
        return path
    statements = _views(store)
    for schema in TABLES.values():
        _publish_empty(store, schema)
    fresh = store.root / "tmp" / f"{uuid.uuid4().hex}.duckdb"
    # DuckDB cannot write below a path with a "?"
    with tempfile.TemporaryDirectory(prefix="selfplay-views-") as folder:
        with duckdb.connect(f"{folder}/{DATABASE}") as connection:
            connection.begin()  # else each view would be a separate transaction, synced to disk
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        shutil.copyfile(f"{folder}/{DATABASE}", fresh)
    fresh.replace(path)
    (store.root / STAMP).write_text(_version(statements))
    return path


def _is_current(store: Store) -> bool:
    """Whether `warehouse.duckdb` holds the views of this code."""
    stamp = store.root / STAMP
    if not (store.root / DATABASE).exists() or not stamp.exists():
        return False
    return stamp.read_bytes() == _version(_views(store)).encode()


def _version(statements: list[str]) -> str:
    return hash_json(
        [duckdb.__version__, *statements, *(str(schema.arrow) for schema in TABLES.values())]
    )


def query(root: Path | str, sql: str, parameters: dict[str, Any] | None = None) -> list[Row]:
    """The rows of a query over the views.

    Raises duckdb.Error on bad SQL, ValueError if there is no statement.
    """
    with connect(root, sql) as connection:
        result = connection.execute(sql, parameters or None)
        if result is None:
            raise ValueError("there is no statement to execute")
        return _rows(result)


@contextlib.contextmanager
def snapshot(
    root: Path | str,
    tables: Iterable[str],
    runs: Iterable[str],
    given: Mapping[str, pa.Table] = MappingProxyType({}),
) -> Iterator[Ask]:
    """Yield a function that queries the rows of some runs in some tables, which are read only once.

    Over many runs, every query of a view opens thousands of files. Query only these tables, and
    those in `given`, which has further tables by name.
    """
    tables = list(tables)
    with connect(root, " ".join(tables)) as connection:
        connection.register("runs_to_read", pa.table({"run": pa.array(runs, pa.string())}))
        for name in tables:
            only = "select * from {0} where run in (select run from runs_to_read)"
            connection.execute(f"create temp table rows_of_{name} as {only.format(name)}")
            connection.execute(f"drop view if exists temp.{name}")
            connection.execute(f"alter table rows_of_{name} rename to {name}")
        for name, rows in given.items():
            connection.register(name, rows)
        yield lambda sql, parameters: _rows(connection.execute(sql, parameters))


def run_sql(sql: str, tables: dict[str, pa.Table], parameters: dict[str, Any]) -> list[Row]:
    """The rows of a stage's query.

    `tables` are visible under their names, `$name` refers to a parameter. Raises duckdb.Error on
    bad SQL.
    """
    with in_memory() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return _rows(connection.execute(sql, parameters or None))


def in_memory() -> duckdb.DuckDBPyConnection:
    """A connection to an empty in-memory database."""
    connection = duckdb.connect()
    connection.execute("set threads = 2")
    return connection


def out_of_core(scratch: Path | None = None, memory_mb: int = 1024) -> duckdb.DuckDBPyConnection:
    """A connection for more rows than memory holds.

    It runs one thread and spills what exceeds `memory_mb` to `scratch`, a folder that nothing else
    may use (by default among the system's temporary files).
    """
    if scratch is None:
        scratch = Path(tempfile.gettempdir()) / f"selfplay-{uuid.uuid4().hex}"
    return duckdb.connect(
        config={
            "threads": 1,
            "memory_limit": f"{memory_mb}MB",
            "temp_directory": str(scratch),
            "preserve_insertion_order": False,
        }
    )


def _rows(result: duckdb.DuckDBPyConnection) -> list[Row]:
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _publish_empty(store: Store, schema: Schema) -> None:
    address = str(Address(EMPTY, table=schema.name))
    made = store.find(address)
    if made is None or made.recipe["key"] != str(schema.arrow):
        with store.draft(schema) as draft:
            try:
                store.publish(draft, address, {"key": str(schema.arrow), "stage": "empty"})
            except OSError as problem:
                # these mean that another process was faster
                if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise


def _views(store: Store) -> list[str]:
    views = (_view(store, schema) for schema in TABLES.values())
    return [*views, replies_view(), *_view_files()]


def _made_of() -> dict[str, str]:
    """The SQL of every view that is built on others, by name; "" for views over files.

    Every view comes after those that it is built on.
    """
    made_of = {_name_of(schema): "" for schema in TABLES.values()}
    made_of["replies"] = replies_view()
    for sql in _view_files():
        for name in VIEW.findall(sql):
            made_of[name] = sql
    return made_of


def _view_files() -> list[str]:
    """The SQL files of views that are built on others, and of macros."""
    return [file.read_text(encoding="utf-8") for file in sorted((SQL / "views").glob("*.sql"))]


def replies_view() -> str:
    """The view `replies`, of every reply that some table has parsed.

    Its columns are the reply's place, rollout_id, parsed and malformed.
    """
    return "create view replies as\n" + "\nunion all\n".join(
        _replies_of(schema.name, schema.parsed) for schema in TABLES.values() if schema.parsed
    )


def _replies_of(table: str, parsed: ReplyColumns) -> str:
    text = f"cast({parsed.text} as varchar)"
    malformed = "malformed"
    rows = ""
    if parsed.order:  # a reply yields several rows
        text = f"string_agg({text}, chr(10) order by {parsed.order})"
        malformed = "any_value(malformed)"
        rows = "group by all"
    return f"""
        select run, iteration, phase, step, {parsed.rollout} as rollout_id, {text} as parsed,
            {malformed} as malformed
        from {table}
        where {parsed.rollout} is not null
        {rows}
    """


def as_pattern(path: Path) -> str:
    """A pattern that only this path matches.

    >>> as_pattern(Path("/a*b[1]?"))
    '/a[*]b[[]1][?]'
    """
    return WILD.sub(r"[\g<0>]", str(path))


def _view(store: Store, schema: Schema) -> str:
    """The view of a table over the files of all runs.

    The names in it come from the code, never from a user.
    """
    glob = f"{as_pattern(store.root)}/runs/**/{schema.name}*/{PARTS}".replace("'", "''")
    files = (
        f"read_parquet('{glob}', filename = true, union_by_name = true, hive_partitioning = false)"
    )
    return f"""
        {view_of(schema, files)}
        where regexp_matches(filename, '/{schema.name}(\\.[^/]+)?/part-\\d+.parquet$')
    """


def view_of(schema: Schema, source: str) -> str:
    """The view `<name>`, or `<name>_table` if another view is built on it.

    It has the rows of `source` with the parts of their `Address`, which are parsed from the column
    `filename`. The patterns mirror that class for phases below an iteration.
    """
    table = f"{schema.name}(?:\\.[^/]+)?"
    return f"""
        create or replace view {_name_of(schema)} as
        select
            regexp_extract(filename, '.*/runs/([^/]+)/', 1) as run,
            try_cast(
                regexp_extract(filename, '.*/runs/[^/]+/iter-(\\d+)/', 1) as integer
            ) as iteration,
            nullif(
                regexp_extract(
                    filename,
                    '.*/runs/[^/]+/iter-\\d+(?:/([^/]+))??(?:/step-\\d+)?/{table}/part-',
                    1
                ),
                ''
            ) as phase,
            try_cast(
                regexp_extract(filename, '.*/runs/[^/]+/.*/step-(\\d+)/', 1) as integer
            ) as step,
            nullif(regexp_extract(filename, '/{schema.name}\\.([^/]+)/part-', 1), '') as label,
            * exclude (filename)
        from {source}
    """


def _name_of(schema: Schema) -> str:
    """The name of the view over a table's files."""
    if (SQL / "views" / f"{schema.name}.sql").exists():
        return f"{schema.name}_table"
    return schema.name
