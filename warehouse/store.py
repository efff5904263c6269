"""The artifact store: tables at readable addresses, the recipe beside the rows, published whole or not at all.

`runs/<run>/iter-003/solver/step-007/rollouts.grade/` holds `part-00000.parquet`, `recipe.json` and, for a policy,
its files.
The address is for people; the recipe is for truth. A table is written in `tmp/` and becomes visible by one rename.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.schemas import TABLES, Schema

RECIPE = "recipe.json"
PART = "part-00000.parquet"
FILES = "files"


class Damaged(ValueError):
    """A published table whose bytes are not those that were published."""


def hash_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def hash_json(value: Any) -> str:
    return hash_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())


def hash_folder(folder: Path) -> str:
    """Content hash of all files of a folder, names included."""
    entries = sorted(p for p in folder.rglob("*") if p.is_file())
    return hash_json([[str(p.relative_to(folder)), hash_bytes(p.read_bytes())] for p in entries])


@dataclass(frozen=True)
class Place:
    """Where in a run a stage writes: `place.iteration(3).phase("solver").step(7)`."""

    store: Store
    parts: tuple[str, ...]

    def iteration(self, number: int) -> Place:
        return replace(self, parts=(*self.parts, f"iter-{number:03d}"))

    def phase(self, name: str) -> Place:
        return replace(self, parts=(*self.parts, name))

    def step(self, number: int) -> Place:
        return replace(self, parts=(*self.parts, f"step-{number:03d}"))

    def address(self, table: str, label: str | None = None) -> str:
        return "/".join((*self.parts, f"{table}.{label}" if label else table))

    @property
    def path(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True)
class Table:
    """A published table: a handle, its rows still on disk."""

    store: Store
    address: str
    recipe: dict[str, Any]

    @property
    def schema(self) -> Schema:
        return TABLES[self.recipe["table"]]

    @property
    def content_hash(self) -> str:
        return self.recipe["content_hash"]

    @property
    def num_rows(self) -> int:
        return self.recipe["num_rows"]

    @property
    def folder(self) -> Path:
        return self.store.folder(self.address)

    @property
    def files(self) -> Path:
        return self.folder / FILES

    @cached_property
    def arrow(self) -> pa.Table:
        """All rows, after checking that the bytes are those published. Raises `Damaged`."""
        path = self.folder / PART
        data = path.read_bytes() if path.exists() else b""
        if hash_bytes(data) != self.recipe["rows_hash"]:
            raise Damaged(f"{self.address}/{PART} is not what was published (lost or changed); run again to remake it")
        return pq.read_table(pa.BufferReader(data))

    @property
    def whole(self) -> bool:
        """Whether rows and files are, byte for byte, what was published."""
        path = self.folder / PART
        if not path.exists() or hash_bytes(path.read_bytes()) != self.recipe["rows_hash"]:
            return False
        has_files = self.recipe["content_hash"] != self.recipe["rows_hash"]
        return not has_files or hash_json([self.recipe["rows_hash"], hash_folder(self.files)]) == self.content_hash

    def rows(self) -> list[dict[str, Any]]:
        return self.arrow.to_pylist(maps_as_pydicts="strict")


class Draft:
    """A table being written in `tmp/`: rows go to one Parquet file, other files under `files`."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.folder, self.schema = folder, schema
        self.num_rows = 0
        (folder / FILES).mkdir(parents=True)
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

    def close(self) -> dict[str, Any]:
        """Finish the file: number of rows, hash of the rows, hash of rows and files."""
        self._writer.close()
        rows_hash = content_hash = hash_bytes((self.folder / PART).read_bytes())
        if any(self.files.iterdir()):
            content_hash = hash_json([rows_hash, hash_folder(self.files)])
        else:
            self.files.rmdir()
        return {"num_rows": self.num_rows, "rows_hash": rows_hash, "content_hash": content_hash}


class Store:
    """All runs under one root folder."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).resolve()
        for name in ("runs", "tmp", "locks"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def run(self, name: str) -> Place:
        return Place(self, (name,))

    def folder(self, address: str) -> Path:
        return self.root / "runs" / address

    def find(self, address: str) -> Table | None:
        """The table published at an address, or None."""
        recipe = self.folder(address) / RECIPE
        if not recipe.exists():
            return None
        return Table(self, address, json.loads(recipe.read_text()))

    def get(self, address: str) -> Table:
        table = self.find(address)
        if table is None:
            raise ValueError(f"nothing is published at {address}")
        return table

    def tables(self, run: str | None = None) -> Iterator[Table]:
        """All published tables, of one run or of all, in order of address."""
        top = self.root / "runs" / (run or "")
        for recipe in sorted(top.rglob(RECIPE)):
            if FILES not in recipe.relative_to(top).parts:
                yield self.get(str(recipe.parent.relative_to(self.root / "runs")))

    @contextlib.contextmanager
    def draft(self, schema: Schema) -> Iterator[Draft]:
        """A place to write a table; removed unless it was published."""
        draft = Draft(self.root / "tmp" / uuid.uuid4().hex, schema)
        try:
            yield draft
        finally:
            shutil.rmtree(draft.folder, ignore_errors=True)

    def publish(self, draft: Draft, address: str, recipe: dict[str, Any]) -> Table:
        """Make a draft visible at its address in one rename, in place of what stood there."""
        recipe = {**recipe, "table": draft.schema.name, **draft.close()}
        with open(draft.folder / RECIPE, "w") as file:
            json.dump(recipe, file, indent=1, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        folder = self.folder(address)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            old = self.root / "tmp" / uuid.uuid4().hex
            os.rename(folder, old)
            os.rename(draft.folder, folder)
            shutil.rmtree(old)
        else:
            os.rename(draft.folder, folder)
        return Table(self, address, recipe)

    @contextlib.contextmanager
    def lock(self, address: str) -> Iterator[None]:
        """Hold an address while working on it. The kernel frees the lock of a holder that died."""
        with self._locked(address) as file:
            file.truncate(0)
            holder = {"address": address, "pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            file.write(json.dumps(holder))
            file.flush()
            try:
                yield
            finally:
                os.unlink(file.name)

    def _locked(self, address: str) -> TextIO:
        """The lock file of an address, locked. Raises RuntimeError naming the holder."""
        path = self.root / "locks" / address.replace("/", "~")
        for patience_s in (0.0, 0.02, 0.1, 0.0):  # `working` looks at a free lock for an instant
            file = open(path, "a+")  # noqa: SIM115
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(
                    os.fstat(file.fileno()), os.stat(path)
                ):  # else its last holder removed it meanwhile
                    return file
            file.seek(0)
            holder = file.read() or "another process"
            file.close()
            time.sleep(patience_s)
        raise RuntimeError(f"{address} is being made by {holder}; wait for it or stop it")

    def working(self) -> Iterator[dict[str, Any]]:
        """What is being made right now: address, pid, host, since (s since the epoch)."""
        for path in sorted((self.root / "locks").iterdir()):
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield json.loads(file.read() or "{}")


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
