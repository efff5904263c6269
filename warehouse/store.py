"""The artifact store.

A table has a readable address, keeps its recipe beside its rows, and is published whole or not at
all.

`runs/<run>/iter-003/solver/step-007/rollouts.grade/` holds `part-00000.parquet`, `recipe.json` and,
for a policy, its files. The address is for people; what a table holds is defined by its recipe. A
table is written in `tmp/` and published by one rename. A long stage stores its parts under
`unfinished/`, so that it can resume from them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from warehouse import locks
from warehouse.address import Address, by_number, check_run_name
from warehouse.behind import BackgroundWork
from warehouse.draft import (
    ALIVE,
    AWAITS,
    FILES,
    PARTS,
    RECIPE,
    SEAL,
    Draft,
    Shards,
    exchange,
    write_json,
    write_recipe,
)
from warehouse.freshness import Freshness
from warehouse.schemas import UPDATES, Schema
from warehouse.table import RUNS, Damaged, Table, find_table
from warehouse.version import check_version

log = logging.getLogger("selfplay")
LOCKS = "locks"
ORPHANED = "left.json"
OLD_DRAFT_S = 60.0
NEARLY_FULL = 1 << 24  # bytes
RUST_ERROR = re.compile(r"\(os error (\d+)\)")
REFUSED_WRITES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # reads never raise these
REFUSALS = {
    *REFUSED_WRITES,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ESTALE,
}


class Unwritable(RuntimeError):
    """The store's disk is full, read-only or gone."""


def _damaged(path: Path, problem: str) -> Damaged:
    return Damaged(
        f"{path} is damaged ({problem}): remove it, then repeat the original `selfplay run` command"
    )


def check_recipes(without_recipe: Iterable[str]) -> None:
    """Raise Damaged, naming the first one, if there are addresses without an intact recipe.

    `Store.without_recipe` yields them; lists of tables leave them out.
    """
    addresses = list(without_recipe)
    if not addresses:
        return
    others = ""
    if len(addresses) > 1:
        others = f" ({len(addresses) - 1} more of its run are, too)"
    raise Damaged(
        f"{addresses[0]}/{RECIPE} is lost, truncated or changed{others}: repeat `selfplay run`,"
        " which rebuilds the table"
    )


@dataclass(frozen=True)
class Place:
    """The place in a run where a stage writes: `place.iteration(3).phase("solver").step(7)`."""

    store: Store
    at: Address

    def iteration(self, number: int) -> Place:
        """The place of an iteration of the run."""
        return replace(self, at=Address(self.at.run, number))

    def phase(self, name: str) -> Place:
        """The place of a phase of this iteration."""
        return replace(self, at=replace(self.at, phase=name, step=None))

    def step(self, number: int) -> Place:
        """The place of a step of this phase."""
        return replace(self, at=replace(self.at, step=number))

    def address(self, table: str, label: str | None = None) -> str:
        """The address at which a table made here is published."""
        return str(replace(self.at, table=table, label=label or None))

    @property
    def path(self) -> str:
        """The place as text, with which the addresses of its tables begin."""
        return str(self.at)


class Store:
    """All runs under one root folder.

    While a flow works on them, `freshness` decides which tables are rebuilt.

    Raises IncompatibleStore for a store whose schema has another version (`warehouse.version`).
    """

    def __init__(
        self, root: Path | str, freshness: Freshness | None = None, quiet: bool = False
    ) -> None:
        self.root = Path(root).resolve()
        self.log_level = logging.DEBUG if quiet else logging.INFO  # of lines about its tables
        self.freshness = freshness or Freshness()
        self.behind = BackgroundWork()
        self._refusal: Exception | None = None
        # called with every table that a flow reaches, built or fresh
        self.watchers: list[Callable[[Table], None]] = []
        with self.writable():
            self._make_folders()
            check_version(self.root, self.runs)

    @staticmethod
    def is_at(root: Path) -> bool:
        """Whether there is a store in the folder."""
        return (root / RUNS).is_dir()

    def _make_folders(self) -> None:
        try:
            for name in (RUNS, "tmp", LOCKS, "unfinished"):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        except (NotADirectoryError, FileExistsError, FileNotFoundError) as problem:
            raise Unwritable(
                f"the store {self.root} is not a folder and cannot be created ({problem.strerror}):"
                " set SELFPLAY_STORE to another one"
            ) from None

    @contextlib.contextmanager
    def writable(self) -> Iterator[None]:
        """Explain a refused write in the store.

        Raises Unwritable for a full or read-only disk, a quota, or missing permissions. Errors of
        files elsewhere, such as a corpus that a stage reads, pass through unchanged.
        """
        try:
            yield
        except Exception as problem:  # libraries report a full disk by their own exceptions
            folder = self.root if self.root.exists() else Path.cwd()
            free = shutil.disk_usage(folder).free
            refused = self._is_refusal(problem)
            if isinstance(problem, Unwritable) or not (refused or free < NEARLY_FULL):
                raise
            raise Unwritable(
                f"the store {self.root} ({free / 1e6:.0f} MB free) cannot be written to: {problem}."
                " No unfinished table was published; free disk space (`selfplay clean`) or fix"
                " permissions, then repeat the command"
            ) from problem

    def _is_refusal(self, problem: Exception) -> bool:
        """Whether an error is that of a refused write in the store.

        An error that names no file counts as one, because a failed write to an open file names
        none. Rust libraries, such as safetensors, raise their own errors. These hold the number of
        the system's error but may be about reading a file elsewhere, so only the numbers of writes
        count.
        """
        if not isinstance(problem, OSError):
            number = RUST_ERROR.search(str(problem))
            return number is not None and int(number[1]) in REFUSED_WRITES
        if problem.errno not in REFUSALS:
            return False
        names = [
            os.fsdecode(name)
            for name in (problem.filename, problem.filename2)
            if isinstance(name, (str, bytes))
        ]
        return not names or any(map(self._concerns, names))

    def _concerns(self, path: str) -> bool:
        """Whether a path is in the store, or is a folder above it."""
        whole = Path(path).absolute()
        return whole.is_relative_to(self.root) or self.root.is_relative_to(whole)

    def run(self, name: str) -> Place:
        """The place of a run. Raises ValueError for an invalid name."""
        return Place(self, Address(check_run_name(name)))

    @property
    def runs(self) -> Path:
        """The folder that addresses, and file paths stored in tables, are relative to."""
        return self.root / RUNS

    def folder(self, address: str) -> Path:
        """The folder of the table at an address, whether or not it exists."""
        return self.runs / address

    def find(self, address: str) -> Table | None:
        """The table published at an address, or None.

        A table whose recipe is lost, truncated or changed counts as missing.
        """
        return find_table(self.root, address)

    def get(self, address: str) -> Table:
        """Return the published table at an address. Raises ValueError if there is none."""
        table = self.find(address)
        if table is None:
            raise ValueError(f"nothing is published at {address}")
        return table

    def tables(self, run: str | None = None, kind: Schema | None = None) -> Iterator[Table]:
        """All published tables of one run, or of all, ordered by address.

        Step 999 comes before step 1000. With `kind`, only tables of that kind. Skips tables that
        are removed meanwhile.
        """
        top = self.runs
        if run is not None:
            top = self.runs / check_run_name(run)
        for folder, folders, files in os.walk(top):
            folders.sort(key=by_number)
            if RECIPE in files:
                folders.clear()
                address = Path(folder).relative_to(self.runs).as_posix()
                if kind is not None and Address.parse(address).table != kind.name:
                    continue
                if table := self.find(address):
                    yield table

    def updates(self, run: str, until: int | None = None) -> Iterator[Table]:
        """The updates of a run, in order, without orphaned ones.

        With `until`, only those of iterations up to that one, and those outside any. Raises Damaged
        if one of them lacks an intact recipe, except in a dry run: an earlier update would pass for
        the last one.
        """
        orphaned = self.orphaned(run)

        def is_wanted(address: str) -> bool:
            is_late = until is not None and (Address.parse(address).iteration or 0) > until
            return address not in orphaned and not is_late

        if self.freshness.builds:
            check_recipes(filter(is_wanted, self.without_recipe(run, UPDATES)))
        return (table for table in self.tables(run, UPDATES) if is_wanted(table.address))

    def reached(self, run: str) -> Iterator[Table]:
        """The tables of a run, in order, without orphaned updates."""
        orphaned = self.orphaned(run)
        return (table for table in self.tables(run) if table.address not in orphaned)

    def orphaned(self, run: str) -> set[str]:
        """The orphaned updates of a run.

        They are left over from other settings, or from another version of its flow.
        """
        return set((self.kept(run, ORPHANED) or {}).get(UPDATES.name, ()))

    def note_orphaned(self, run: str, updates: Sequence[str]) -> None:
        """Note which updates of a run are orphaned."""
        if updates or self.kept(run, ORPHANED):
            self.keep(run, ORPHANED, {UPDATES.name: list(updates)})

    def note_reached(self, table: Table) -> None:
        """Note that a flow has reached a table: an update is then no longer orphaned."""
        orphaned = self.orphaned(table.at.run) if table.schema is UPDATES else set()
        if table.address in orphaned:
            self.note_orphaned(table.at.run, sorted(orphaned - {table.address}))

    def without_recipe(self, run: str, kind: Schema | None = None) -> Iterator[str]:
        """Yield addresses in a run that hold rows but no intact recipe.

        The recipe was removed, truncated or changed. With `kind`, only addresses of tables of that
        kind.
        """
        for folder, folders, files in os.walk(self.folder(check_run_name(run))):
            folders.sort(key=by_number)
            if fnmatch.filter(files, PARTS):
                folders.clear()
                address = Path(folder).relative_to(self.runs).as_posix()
                if kind is not None and Address.parse(address).table != kind.name:
                    continue
                if self.find(address) is None:
                    yield address

    @contextlib.contextmanager
    def draft(self, schema: Schema) -> Iterator[Draft]:
        """Yield a draft of a table of `schema`, which is removed unless it was published.

        Raises Unwritable as `writable` does, RuntimeError in a dry run, and what
        `refuse_to_publish` says.
        """
        self._check_builds(f"a table of {schema.name}")
        self._check_publishes()
        with self.writable():
            draft = Draft(self.root / "tmp" / uuid.uuid4().hex, schema)
        try:
            with self.writable():
                yield draft
        finally:
            draft.discard()

    def shards(self, schema: Schema, address: str, key: str) -> Shards:
        """The parts that a stage stores until it publishes the table at `address`.

        `key` is the key of the table's recipe.
        """
        return Shards(self.unfinished(address) / key, self.root / "tmp", schema)

    def unfinished(self, address: str) -> Path:
        """The folder of partial results, which survive a kill."""
        return self.root / "unfinished" / address.replace("/", "~")

    def rows_so_far(self, address: str) -> int:
        """The number of rows that a running stage has stored so far."""
        num_rows = 0
        for path in self.unfinished(address).glob("*/*.parquet"):
            with contextlib.suppress(OSError, ValueError):  # published meanwhile
                num_rows += pq.read_metadata(path).num_rows
        return num_rows

    def sweep(self) -> None:
        """Remove the drafts of processes that were killed."""
        for path in (self.root / "tmp").iterdir():
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                if time.time() - path.stat().st_mtime < OLD_DRAFT_S:
                    continue
                with open(path.with_suffix(ALIVE) if path.is_dir() else path, "a") as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                    os.unlink(held.name)

    def refuse_to_publish(self, why: Exception) -> None:
        """Raise `why` from now on wherever a table is begun, published or amended."""
        self._refusal = why

    def _check_publishes(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def publish(self, draft: Draft, address: str, recipe: dict[str, Any]) -> Table:
        """Publish a draft at its address by one rename, replacing any table there."""
        recipe = {**recipe, "table": draft.schema.name, **draft.finish()}
        if draft.awaited:
            recipe[AWAITS] = [f"{FILES}/{name}" for name in draft.awaited]
        return self.adopt(draft, address, recipe)

    def adopt(self, draft: Draft, address: str, recipe: dict[str, Any]) -> Table:
        """Publish a draft with an existing recipe, which describes its files.

        Raises what `refuse_to_publish` says.
        """
        self._check_publishes()
        recipe = write_recipe(draft.folder / RECIPE, recipe)
        folder = self.folder(address)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            exchange(draft.folder, folder)  # the old table is discarded with the draft
        else:
            os.rename(draft.folder, folder)
        table = Table(self.root, address, recipe)
        if not table.awaits:  # until then, the stage resumes after a kill
            self._remove_unfinished(address)
        return table

    def _remove_unfinished(self, address: str) -> None:
        # A kill must not leave it half removed: the next call would resume from it.
        superseded = self.root / "tmp" / uuid.uuid4().hex
        with contextlib.suppress(OSError):  # most stages have none
            os.rename(self.unfinished(address), superseded)
            shutil.rmtree(superseded, ignore_errors=True)

    def write_behind(self, table: Table, files: Mapping[str, Callable[[Path], object]]) -> None:
        """Fill folders of a table's files while later stages run.

        `files` maps each folder to the function that writes it; see `behind`.
        """
        for name, write in files.items():
            self.behind.start(partial(self._add, table, name, write))

    def _add(self, table: Table, name: str, write: Callable[[Path], object]) -> None:
        """Write a folder of a table's files and make it visible by one rename.

        The amended recipe then makes it part of the table.
        """
        started = time.monotonic()
        with self.lock(table.address), self.draft(table.schema) as draft:
            write(draft.files / name)
            contents = draft.contents()
            now = self.get(table.address)
            if now.recipe[SEAL] != table.recipe[SEAL]:
                raise RuntimeError(f"{table.address} was rebuilt while {name} was being written")
            os.rename(draft.files / name, now.files / name)
            recipe = {**now.recipe, "contents": now.contents | contents}
            recipe[AWAITS] = [awaited for awaited in now.awaits if awaited != f"{FILES}/{name}"]
            self.amend(table.address, recipe)
            if not recipe[AWAITS]:
                self._remove_unfinished(table.address)
        log.info(
            "%s: %s was written in the background in %.1f s",
            table.address,
            name,
            time.monotonic() - started,
        )

    def amend(self, address: str, recipe: dict[str, Any]) -> None:
        """Replace the recipe of a published table, whole or not at all.

        Raises RuntimeError in a dry run, and what `refuse_to_publish` says.
        """
        self._check_builds(f"the recipe of {address}")
        self._check_publishes()
        fresh = self.root / "tmp" / f"{uuid.uuid4().hex}.json"
        write_recipe(fresh, recipe)
        os.replace(fresh, self.folder(address) / RECIPE)

    def keep(self, run: str, name: str, value: Any) -> None:
        """Write `name`, a JSON file, beside the tables of a run, whole or not at all.

        Raises RuntimeError in a dry run.
        """
        self._check_builds(f"{name} of the run {run!r}")
        fresh = self.root / "tmp" / f"{uuid.uuid4().hex}.json"
        write_json(fresh, value)
        path = self.folder(check_run_name(run)) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(fresh, path)

    def _check_builds(self, what: str) -> None:
        if not self.freshness.builds:
            raise RuntimeError(f"a dry run writes nothing to the store, and so not {what}")

    def kept(self, run: str, name: str) -> Any:
        """Read what `keep` wrote; None if there is no such file.

        Raises Damaged for a truncated file, or one that `keep` did not write.
        """
        path = self.folder(check_run_name(run)) / name
        try:
            value = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as problem:
            raise _damaged(path, str(problem)) from None
        if not isinstance(value, dict):
            raise _damaged(path, "it holds no settings")
        return value

    @contextlib.contextmanager
    def lock(self, address: str) -> Iterator[None]:
        """Lock an address while working on it.

        Raises RuntimeError, naming the holder, if it is locked.
        """
        with contextlib.ExitStack() as held:
            with self.writable():
                held.enter_context(locks.hold(self.root / LOCKS, address))
            yield

    @contextlib.contextmanager
    def playing(self, run: str) -> Iterator[None]:
        """Mark a run as worked on by a flow, also between two of its stages."""
        with contextlib.ExitStack() as held:
            with self.writable():
                held.enter_context(locks.share(self.root / LOCKS / RUNS, check_run_name(run)))
            yield

    @contextlib.contextmanager
    def unplayed(self, run: str) -> Iterator[None]:
        """Keep flows on this machine from beginning to work on a run: they wait.

        Raises ValueError if a flow is working on it already.
        """
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locks.alone(self.root / LOCKS / RUNS, check_run_name(run)))
            except BlockingIOError:
                raise ValueError(f"run {run!r} is in use: wait until its flow has ended") from None
            yield

    def is_played(self, run: str) -> bool:
        """Whether a flow on this machine is working on a run."""
        return locks.is_shared(self.root / LOCKS / RUNS, run)

    def check_free(self, address: str) -> None:
        """Raise RuntimeError, naming the holder, if an address is locked."""
        locks.check_free(self.root / LOCKS, address)

    def working(self, run: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the tables being built right now, in one run or in all.

        Each is a dict of address, pid, host, and since (seconds since the epoch).
        """
        for work in locks.held(self.root / LOCKS):
            if run in (None, Address.parse(work["address"]).run):
                yield work
