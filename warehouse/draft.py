"""Tables while they are written: drafts that are published whole, and shards that outlive a kill."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.schemas import Schema

RECIPE = "recipe.json"
PART = "part-00000.parquet"
FILES = "files"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Draft:
    """A table being written in `tmp/`: rows go to one Parquet file, other files under `files`.

    The folder is locked as long as its process lives, so that what a killed one left behind can be told apart.
    """

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder, self.schema = folder, schema
        self.num_rows = 0
        (folder / FILES).mkdir(parents=True)
        self._alive = os.open(folder, os.O_RDONLY)
        fcntl.flock(self._alive, fcntl.LOCK_EX)
        self._writer = pq.ParquetWriter(folder / PART, schema.arrow, compression="zstd")

    @property
    def files(self) -> Path:
        return self.folder / FILES

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append rows; a key that the schema lacks or a null it forbids is a ValueError naming both."""
        self._check(rows)
        self._writer.write_table(pa.Table.from_pylist(list(rows), schema=self.schema.arrow))
        self.num_rows += len(rows)

    def _check(self, rows: Sequence[dict[str, Any]]) -> None:
        known = {c.name for c in self.schema.columns}
        required = [c.name for c in self.schema.columns if not c.nulls]
        for row in rows:
            if extra := row.keys() - known:
                raise ValueError(f"table {self.schema.name} has no column {', '.join(sorted(extra))}")
            if missing := [name for name in required if row.get(name) is None]:
                raise ValueError(f"table {self.schema.name}: {', '.join(missing)} must not be null in {row}")

    def finish(self) -> dict[str, Any]:
        """Close the file of rows; what the recipe says of all that was written."""
        self._writer.close()
        if not any(self.files.iterdir()):
            self.files.rmdir()
        contents = {}
        for path in sorted(p for p in self.folder.rglob("*") if p.is_file()):
            found = path.stat()
            entry = {"bytes": found.st_size, "hash": hash_file(path), "mtime_ns": found.st_mtime_ns}
            contents[path.relative_to(self.folder).as_posix()] = entry
        content_hash = hash_json({name: entry["hash"] for name, entry in contents.items()})
        return {"num_rows": self.num_rows, "content_hash": content_hash, "contents": contents}

    def discard(self) -> None:
        """Remove what is left of it: all, unless it was published."""
        with contextlib.suppress(OSError):  # a full disk may refuse the last rows of a table that failed anyway
            self._writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._alive)


class Shards:
    """What a long stage has made so far, in parts that are whole or not there; the same recipe finds them again."""

    def __init__(self, folder: Path, tmp: Path, schema: Schema) -> None:
        self.folder, self.schema, self._tmp = folder, schema, tmp

    def rows(self, section: str) -> list[dict[str, Any]]:
        """All rows of a section's parts. A part that cannot be read is left out, so that its rows are made again."""
        rows = []
        for path in sorted(self.folder.glob(f"{section}-*.parquet")):
            try:
                rows += pq.read_table(path, schema=self.schema.arrow).to_pylist(maps_as_pydicts="strict")
            except (pa.ArrowInvalid, OSError):
                path.unlink()
        return rows

    def write(self, section: str, rows: Sequence[dict[str, Any]]) -> None:
        """Store rows as the section's next part."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self._tmp / f"{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema=self.schema.arrow), fresh, compression="zstd")
        os.rename(fresh, self.folder / f"{section}-{time.time_ns()}.parquet")


def hash_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def hash_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def hash_json(value: Any) -> str:
    return hash_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def hash_folder(folder: Path) -> str:
    """Content hash of all files of a folder, names included."""
    entries = sorted(p for p in folder.rglob("*") if p.is_file())
    return hash_json([[str(p.relative_to(folder)), hash_file(p)] for p in entries])


def write_json(path: Path, value: Any) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())


def exchange(one: Path, other: Path) -> None:
    """Let two folders change places, at once where the kernel can (Linux), else by way of a third name."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        names = [os.fsencode(path) for path in (one, other)]
        if libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
            return
    aside = one.with_name(uuid.uuid4().hex)
    os.rename(other, aside)
    os.rename(one, other)
    os.rename(aside, one)


def to_rows(rows: Iterable[dict[str, Any]], size: int = 512) -> Iterator[list[dict[str, Any]]]:
    """Cut an iterator of rows into lists of at most `size`."""
    chunk: list[dict[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
