"""Tables being written: drafts that are published whole, and shards that survive a kill."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import logging
import math
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.schemas import Row, Schema

log = logging.getLogger("selfplay")
RECIPE = "recipe.json"
SEAL = "recipe_hash"
PART = "part-00000.parquet"
PARTS = "part-*.parquet"
PART_BYTES = 1 << 28  # size of the rows in memory, before compression
LARGE = 1 << 24  # bytes; hashing a larger file takes longer than starting a thread
FILES = "files"
ALIVE = ".alive"
AWAITS = "awaits"  # in a recipe: folders of files that are still to be written after publishing
# columns that say why a row is not used
REASONS = ("malformed", "reason", "unscorable", "dropped_reason")
SAMPLED = "num_sampled_tokens"  # a column
Chunk = Sequence[Mapping[str, Any]] | pa.Table | Path
AT_FDCWD = -100
RENAME_EXCHANGE = 2


class Draft:
    """A table being written in `tmp/`.

    Rows go to Parquet files of about 256 MiB, other files under `files`.

    A file beside the folder is locked while its process lives, which tells drafts of killed
    processes from live ones. The folder itself cannot be locked: NFS grants locks only on files
    open for writing.
    """

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder = folder
        self.schema = schema
        self.num_rows = self._num_parts = self._part_bytes = 0
        (folder / FILES).mkdir(parents=True)
        self._alive = open(folder.with_suffix(ALIVE), "w")  # noqa: SIM115
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._writer: pq.ParquetWriter | None = None
        self._hashes: dict[tuple[str, int, int], str] = {}
        self.tokens: int | None = None  # number of tokens sampled or trained on
        self.awaited: dict[str, Callable[[Path], object]] = {}

    def later(self, name: str, write: Callable[[Path], object]) -> None:
        """Publish without the folder `name` of the table's files; `write` fills it afterwards."""
        self.awaited[name] = write

    @property
    def files(self) -> Path:
        """The folder of the table's other files."""
        return self.folder / FILES

    def write(self, chunk: Chunk) -> None:
        """Append rows: dicts, an Arrow table, or a whole Parquet file, which becomes a separate
        part.

        Raises ValueError, naming table and column, for a column that the schema lacks or a null
        that it forbids.
        """
        if isinstance(chunk, Path):
            self._adopt(chunk)
            return
        table = self._checked(chunk) if isinstance(chunk, pa.Table) else self._from_rows(chunk)
        if self._writer is None or self._part_bytes > PART_BYTES:
            self._close_part()
            self._writer = pq.ParquetWriter(
                self._next_part(), self.schema.arrow, compression="zstd"
            )
        self._writer.write_table(table)
        self._part_bytes += table.nbytes
        if SAMPLED in table.column_names:
            self.tokens = (self.tokens or 0) + sum(table[SAMPLED].to_pylist())
        self.num_rows += table.num_rows

    def _adopt(self, file: Path) -> None:
        columns = pq.read_schema(file)
        if not columns.equals(self.schema.arrow):
            raise ValueError(
                f"{file.name} is not a part of a table {self.schema.name}: its columns are"
                f" {columns.names}"
            )
        self._close_part()
        part = self._next_part()
        try:
            os.link(file, part)
        except OSError:  # another filesystem, or one without hard links
            shutil.copyfile(file, part)
        self.num_rows += pq.read_metadata(part).num_rows

    def _next_part(self) -> Path:
        self._num_parts += 1
        return self.folder / f"part-{self._num_parts - 1:05d}.parquet"

    def _close_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None
        self._part_bytes = 0

    def _checked(self, table: pa.Table) -> pa.Table:
        if extra := set(table.column_names) - set(self.schema.arrow.names):
            raise ValueError(f"table {self.schema.name} has no column {', '.join(sorted(extra))}")
        empty = {c.name for c in self.schema.columns if not c.nulls and table[c.name].null_count}
        if empty:
            raise ValueError(
                f"table {self.schema.name}: {', '.join(sorted(empty))} must not be null"
            )
        return table.select(self.schema.arrow.names).cast(self.schema.arrow)

    def _from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        known = {c.name for c in self.schema.columns}
        required = [c.name for c in self.schema.columns if not c.nulls]
        for row in rows:
            if extra := row.keys() - known:
                raise ValueError(
                    f"table {self.schema.name} has no column {', '.join(sorted(extra))}"
                )
            if missing := [name for name in required if row.get(name) is None]:
                raise ValueError(
                    f"table {self.schema.name}: {', '.join(missing)} must not be null in {row}"
                )
            if odd := [name for name in self.schema.finite if not _is_finite(row.get(name))]:
                raise ValueError(
                    f"table {self.schema.name}: {', '.join(odd)} must be a finite number in {row}"
                )
        try:
            return pa.Table.from_pylist(list(rows), schema=self.schema.arrow)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as problem:
            raise ValueError(
                f"table {self.schema.name}: {self._misfit(rows)}: {problem}"
            ) from problem

    def _misfit(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """The first column with a value that does not fit its type."""
        for column in self.schema.columns:
            try:
                pa.array([row.get(column.name) for row in rows], column.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                return column.name
        return "a row"

    def finish(self) -> dict[str, Any]:
        """Close the Parquet files; returns what the recipe records about the draft's files."""
        if not self._num_parts:
            self.write([])
        self._close_part()
        if not any(self.files.iterdir()):
            self.files.rmdir()
        contents = self.contents()
        content_hash = hash_json({name: entry["hash"] for name, entry in contents.items()})
        return {"num_rows": self.num_rows, "content_hash": content_hash, "contents": contents}

    def contents(self) -> dict[str, dict[str, Any]]:
        """The recipe's entry for every file, by the file's path below the table's folder."""
        paths = sorted(p for p in self.folder.rglob("*") if p.is_file())
        contents = {}
        for path, hashed in zip(paths, self._hashed(paths), strict=True):
            status = path.stat()
            entry = {"bytes": status.st_size, "hash": hashed, "mtime_ns": status.st_mtime_ns}
            contents[path.relative_to(self.folder).as_posix()] = entry
        return contents

    def hash_folder(self, folder: Path) -> str:
        """Like the function `hash_folder`, but keeps the hashes of files for `finish`."""
        return hash_folder(folder, self._hashed)

    def _hashed(self, paths: Sequence[Path]) -> list[str]:
        """Hashes of files, several at a time; each file is read once unless it changes."""
        known = [
            (str(path), status.st_size, status.st_mtime_ns)
            for path in paths
            for status in [path.stat()]
        ]
        new = [file for file in known if file not in self._hashes]
        hashes = hash_files([Path(file[0]) for file in new])
        self._hashes |= dict(zip(new, hashes, strict=True))
        return [self._hashes[file] for file in known]

    def discard(self) -> None:
        """Remove what is left of the draft: everything, unless it was published."""
        # a full disk may refuse the last rows of a table that failed anyway
        with contextlib.suppress(OSError):
            self._close_part()
        shutil.rmtree(self.folder, ignore_errors=True)
        Path(self._alive.name).unlink(missing_ok=True)
        self._alive.close()


def _is_finite(value: Any) -> bool:
    return value is None or (isinstance(value, Real) and math.isfinite(value))


class Shards:
    """The results of a long stage so far, in parts that are complete or absent.

    The same recipe finds them on resume.
    """

    def __init__(self, folder: Path, tmp: Path, schema: Schema) -> None:
        self.folder = folder
        self.schema = schema
        self._tmp = tmp

    def rows(self, section: str) -> list[Row]:
        """All rows of a section's parts.

        A part that is not a complete Parquet file is removed, so its rows are recomputed. Raises
        OSError, naming the part, if the disk fails to read it; the part is then left for the next
        attempt.
        """
        rows = []
        for path in sorted(self.folder.glob(f"{section}-*.parquet")):
            try:
                rows += pq.read_table(path, schema=self.schema.arrow).to_pylist(
                    maps_as_pydicts="strict"
                )
            except FileNotFoundError:
                continue
            except (pa.ArrowInvalid, OSError) as problem:
                # Arrow raises an OSError without a number for content that it cannot decode
                if isinstance(problem, OSError) and problem.errno is not None:
                    why = problem.strerror or str(problem)
                    raise OSError(problem.errno, why, str(path)) from problem
                log.warning("%s is damaged (%s): recomputing its rows", path, problem)
                path.unlink()
        return rows

    def write(self, section: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Store rows as the section's next part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self._tmp / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(
            pa.Table.from_pylist(list(rows), schema=self.schema.arrow), fresh, compression="zstd"
        )
        os.rename(fresh, self.folder / f"{section}-{time.time_ns()}.parquet")


def hash_file(path: Path) -> str:
    """BLAKE2b of a file's bytes, 32 hex digits. Raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def hash_bytes(data: bytes | memoryview) -> str:
    """BLAKE2b of bytes, 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def hash_json(value: Any) -> str:
    """The hash of a value's JSON, whatever the order of its keys.

    Raises TypeError for a value that JSON cannot represent.
    """
    return hash_bytes(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    )


def unit_draw(*identity: Any) -> float:
    """A pseudo-random number in [0, 1), always the same for an identity.

    >>> round(unit_draw(0, "task-1"), 4)
    0.2336
    """
    return int(hash_json(identity)[:12], 16) / 16**12


def hash_files(paths: Sequence[Path]) -> list[str]:
    """Hashes of files; large ones in parallel, since hashing releases the interpreter lock."""
    if sum(path.stat().st_size > LARGE for path in paths) < 2:
        return [hash_file(path) for path in paths]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        return list(threads.map(hash_file, paths))


def hash_folder(folder: Path, hashed: Callable[[Sequence[Path]], list[str]] = hash_files) -> str:
    """Content hash of all files of a folder, names included. `hashed` computes the files'
    hashes."""
    entries = sorted(p for p in folder.rglob("*") if p.is_file())
    return hash_json(
        [[str(p.relative_to(folder)), h] for p, h in zip(entries, hashed(entries), strict=True)]
    )


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON, and wait until it is on the disk.

    Raises TypeError for a value that JSON cannot represent, OSError if the file cannot be written.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())


def write_recipe(path: Path, recipe: dict[str, Any]) -> dict[str, Any]:
    """Write a recipe sealed with a hash over all of it; returns the sealed recipe."""
    sealed = {**recipe, SEAL: seal_of(recipe)}
    write_json(path, sealed)
    return sealed


def seal_of(recipe: dict[str, Any]) -> str:
    """The hash over a recipe without its seal."""
    return _seal_of_parsed(json.loads(json.dumps(recipe)))


def is_sealed(recipe: dict[str, Any]) -> bool:
    """Whether a recipe that was read from its file is unchanged since it was written."""
    return recipe.get(SEAL) == _seal_of_parsed(recipe)


def _seal_of_parsed(recipe: dict[str, Any]) -> str:
    return hash_json({name: value for name, value in recipe.items() if name != SEAL})


def exchange(one: Path, other: Path) -> None:
    """Swap two folders: atomically if the kernel can (Linux), else through a third name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        names = [os.fsencode(path) for path in (one, other)]
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            return
    aside = one.with_name(uuid.uuid4().hex)
    os.rename(other, aside)
    os.rename(one, other)
    os.rename(aside, one)


def to_chunks(
    rows: Iterable[Mapping[str, Any] | pa.Table | pa.RecordBatch | Path], size: int = 512
) -> Iterator[Chunk]:
    """Gather single rows into lists of at most `size`.

    Arrow tables and Parquet files pass through unchanged; record batches become tables.
    """
    chunk: list[Mapping[str, Any]] = []
    for row in rows:
        if isinstance(row, Mapping):
            chunk.append(row)
        if chunk and (len(chunk) == size or not isinstance(row, Mapping)):
            yield chunk
            chunk = []
        if isinstance(row, pa.RecordBatch):
            yield pa.Table.from_batches([row])
        elif not isinstance(row, Mapping):
            yield row
    if chunk:
        yield chunk


def count_reasons(chunk: Chunk, schema: Schema) -> Counter[str]:
    """The number of rows of a chunk that are not used, by reason."""
    names = [c.name for c in schema.columns if c.name in REASONS]
    if isinstance(chunk, Path):
        return count_reasons(pq.read_table(chunk, columns=names), schema)
    if isinstance(chunk, pa.Table):
        count_of: Counter[str] = Counter()
        for name in names:
            values, counts = cast(pa.Table, chunk)[name].drop_null().value_counts().flatten()
            count_of.update(dict(zip(values.to_pylist(), counts.to_pylist(), strict=True)))
        return count_of
    return Counter(row[name] for row in chunk for name in names if row.get(name) is not None)
