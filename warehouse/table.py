"""A published table: a handle on rows and files, which are checked when they are read."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warehouse.address import Address
from warehouse.draft import AWAITS, FILES, RECIPE, hash_bytes, hash_file, is_sealed
from warehouse.row_groups import row_groups
from warehouse.schemas import ANNOTATIONS, TABLES, Row, Schema

R = TypeVar("R")
Tabular = TypeVar("Tabular", pa.Table, pa.RecordBatch)
RUNS = "runs"  # the folder of a store that holds its tables
BATCH_ROWS = 4_096
PUBLISHED = {"table", "contents", "content_hash", "num_rows"}  # keys of every recipe


class Damaged(ValueError):
    """A published table whose bytes differ from those that were published."""


class Cleaned(ValueError):
    """Rows or files that `selfplay clean` removed."""


@dataclass(frozen=True)
class Table:
    """A handle on a published table of the store at `root`.

    The rows stay on disk until they are asked for.
    """

    root: Path
    address: str
    recipe: dict[str, Any]

    @cached_property
    def at(self) -> Address:
        """The address as a value. Raises ValueError if it is not the address of a table."""
        return Address.parse(self.address)

    @property
    def schema(self) -> Schema:
        return TABLES[self.recipe["table"]]

    @property
    def holds_labels(self) -> bool:
        """Whether it holds labels by people, which no stage of the run made."""
        return self.recipe["table"] == ANNOTATIONS.name

    @property
    def content_hash(self) -> str:
        """The hash over rows and files, as the recipe records it."""
        return self.recipe["content_hash"]

    @property
    def num_rows(self) -> int:
        return self.recipe["num_rows"]

    @property
    def folder(self) -> Path:
        return self.runs / self.address

    @property
    def runs(self) -> Path:
        """The folder that addresses, and file paths stored in tables, are relative to."""
        return self.root / RUNS

    @property
    def files(self) -> Path:
        """The folder of its files other than rows."""
        return self.folder / FILES

    def file(self, path: str) -> Path:
        """The file that a path in this table's rows names.

        The path begins with the address at which the table was first published; in a forked run
        that is the source run's address.
        """
        return self.files / path.partition(f"/{FILES}/")[2]

    @property
    def contents(self) -> dict[str, dict[str, Any]]:
        """Every published file, by its path below the table's folder.

        An entry has its bytes, hash, mtime_ns, and `cleaned` if the file was removed.
        """
        return self.recipe["contents"]

    @property
    def awaits(self) -> tuple[str, ...]:
        """Folders of files that are not written yet (`Store.write_behind`).

        After a kill they never will be.
        """
        return tuple(self.recipe.get(AWAITS, ()))

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the Parquet files that hold its rows, in order."""
        return tuple(name for name in self.contents if "/" not in name)

    @property
    def has_rows(self) -> bool:
        """False once its rows were cleaned away."""
        return not any("cleaned" in self.contents[part] for part in self.parts)

    @cached_property
    def arrow(self) -> pa.Table:
        """All rows.

        Raises Damaged if the bytes are not those published, Cleaned if the rows were removed.
        """
        # `read_table` would import pandas
        files = [
            pq.ParquetFile(pa.BufferReader(self._checked(part)), pre_buffer=False)
            for part in self.parts
        ]
        return with_columns(pa.concat_tables([file.read() for file in files]), self.schema.arrow)

    def paths(self) -> list[Path]:
        """The Parquet files, for queries over more rows than memory holds.

        Raises as `arrow` does, but reads a file's bytes only if its modification time changed and
        its size did not.
        """
        self._check_presence()
        self.check_files()
        return [self.folder / part for part in self.parts]

    def check_files(self, inside: str = "") -> None:
        """Raise Damaged if a published file is lost or changed, as `problems` finds them."""
        if problem := next(self.problems(inside=inside), None):
            raise Damaged(f"{problem}; repeat `selfplay run` to rebuild it")

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows in order, a few thousand at a time. Raises as `paths` does."""
        wanted = [self.schema.arrow.field(name) for name in columns or self.schema.arrow.names]
        for path in self.paths():
            with pq.ParquetFile(path, pre_buffer=False) as file:
                stored = [field.name for field in wanted if field.name in file.schema_arrow.names]
                for batch in file.iter_batches(BATCH_ROWS, columns=stored):
                    yield with_columns(batch, wanted)

    def rows_with(self, column: str, values: Iterable[str]) -> list[Row]:
        """The rows, in order, whose `column` is one of `values`.

        Reads only row groups that may hold such a row, by an index that a process builds once for a
        large table (`warehouse.row_groups`). Raises as `paths` does.
        """
        named = sorted(set(values))
        matching = list[Row]()
        wanted = pc.field(column).isin(pa.array(named, pa.string()))
        groups_of = row_groups(self.content_hash, self.num_rows, self.paths(), column)
        for path, groups in groups_of.holding(named):
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for group in groups:
                    rows = with_columns(
                        file.read_row_group(group).filter(wanted), self.schema.arrow
                    )
                    matching += rows.to_pylist(maps_as_pydicts="strict")
        return matching

    def _checked(self, part: str) -> pa.Buffer:
        """The bytes of a part, in Arrow's memory.

        With Python's `bytes`, the process would end with SIGABRT now and then: an Arrow thread that
        is the last to release them needs the interpreter, which may be shutting down.
        """
        self._check_presence()
        path = self.folder / part
        if path.exists():
            with pa.OSFile(str(path)) as file:
                data = file.read_buffer()
        else:
            data = pa.py_buffer(b"")
        if hash_bytes(memoryview(data)) != self.contents[part]["hash"]:
            raise Damaged(
                f"{self.address}/{part} is not what was published (lost or changed); repeat"
                " `selfplay run` to rebuild"
            )
        return data

    def _check_presence(self) -> None:
        if not self.has_rows:
            raise Cleaned(
                f"the rows of {self.address} were cleaned away; `selfplay rerun` rebuilds them"
            )

    def problems(self, thorough: bool = False, inside: str = "") -> Iterator[str]:
        """Yield one sentence for each published file that is lost or changed.

        `inside` limits this to the files in a folder, such as `files/update/policy`. A file of the
        published size and modification time counts as unchanged; one with another time is read once
        per process. `thorough` reads every file.
        """
        for name, published in self.contents.items():
            path = self.folder / name
            if published.get("cleaned") or (inside and not name.startswith(f"{inside}/")):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                yield f"{self.address}/{name} is lost"
                continue
            if status.st_size != published["bytes"]:
                yield (
                    f"{self.address}/{name} has {status.st_size} bytes, but {published['bytes']}"
                    " were published"
                )
                continue
            if thorough:
                found = hash_file(path)
            elif status.st_mtime_ns != published["mtime_ns"]:
                found = _hash_of(path, status.st_ino, status.st_mtime_ns)
            else:
                continue
            if found != published["hash"]:
                yield f"{self.address}/{name} is not what was published: its bytes changed"

    @overload
    def rows(self) -> list[Row]: ...

    @overload
    def rows(self, kind: type[R]) -> list[R]: ...

    def rows(self, kind: type | None = None) -> list[Any]:
        """All rows as dicts; the type checker sees them as the TypedDict `kind`.

        Raises as `arrow` does, and TypeError if `kind` has columns that the table lacks.
        """
        if kind is not None and (
            unknown := kind.__annotations__.keys() - set(self.schema.arrow.names)
        ):
            raise TypeError(
                f"{self.address} has no column {', '.join(sorted(unknown))}: its rows are no"
                f" {kind.__name__}"
            )
        return self.arrow.to_pylist(maps_as_pydicts="strict")


@functools.lru_cache(maxsize=4096)
def _hash_of(path: Path, inode: int, mtime_ns: int) -> str:
    """The hash of a file, computed once.

    In a copied store, weights have another time, and every stage that samples from them checks
    them.
    """
    return hash_file(path)


def find_table(root: Path, address: str) -> Table | None:
    """The table published at an address of the store at `root`.

    None if its recipe is lost, truncated or changed.
    """
    try:
        path = root / RUNS / address / RECIPE
        status = path.stat()
        return Table(root, address, _read_recipe(path, status.st_ino, status.st_mtime_ns))
    except (FileNotFoundError, ValueError):
        return None


@functools.lru_cache(maxsize=4096)
def _read_recipe(path: Path, inode: int, mtime_ns: int) -> dict[str, Any]:
    """A recipe, parsed once: the report of every iteration reads all tables up to it.

    Recipes are replaced and never edited, so a new recipe has a new inode.
    """
    return read_recipe(path)


def read_recipe(path: Path) -> dict[str, Any]:
    """Read an intact recipe.

    Raises ValueError for one that is truncated or changed in any way: its rows may be those of
    other settings, and the code that reads it relies on its parts.
    """
    recipe = json.loads(path.read_bytes())
    if not isinstance(recipe, dict) or not recipe.keys() >= PUBLISHED or not is_sealed(recipe):
        raise ValueError(f"{path} is not a recipe as it was written")
    return recipe


def with_columns(rows: Tabular, fields: Iterable[pa.Field]) -> Tabular:
    """The rows with a column for every field.

    Columns added to the schema after the rows were written are null.
    """
    for field in fields:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows


def check_iteration(run: str, tables: Iterable[Table], iteration: int) -> None:
    """Raise ValueError if no table of a run belongs to this iteration."""
    there = sorted({table.at.iteration for table in tables if table.at.iteration is not None})
    if iteration not in there:
        raise ValueError(
            f"run {run!r} has no iteration {iteration}; there are"
            f" {', '.join(map(str, there)) or 'none'}"
        )
