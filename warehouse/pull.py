"""Copy a run from a mirror into a store; each file is verified by its hash before it counts."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.address import check_run_name
from warehouse.draft import FILES, hash_file, hash_json
from warehouse.mirror import (
    OWNER,
    ROWS,
    TABLES_AT_ONCE,
    addresses,
    check_recipe,
    kept_key,
    kind_of,
    object_key,
    owner_of,
    read_json,
    recipe_key,
    transfers,
    without_marks,
)
from warehouse.schemas import TABLES, Schema
from warehouse.stopped import STOPPED
from warehouse.store import Store
from warehouse.table import Damaged, Table

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RANGE_BYTES = 1 << 24  # an interrupted file continues after the last range that arrived
FETCHED = "mirror"  # below `unfinished`: a folder for each run that is being pulled
Recipe = dict[str, Any]


@dataclass
class PullCounts:
    """What a pull did."""

    num_tables: int = 0  # published by it
    num_there: int = 0  # published before
    num_files: int = 0
    num_bytes: int = 0
    absent: Counter[str] = field(default_factory=Counter)  # files that nobody pushed, by kind
    changed: list[str] = field(default_factory=list)  # JSON files that were changed here since


def pull(
    store: Store,
    run: str,
    bucket: ObjectStore,
    kinds: Collection[str] = (ROWS,),
    replace_rebuilt: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> PullCounts:
    """Copy the tables of a run, with the files of these `kinds`, from a mirror.

    A repeated pull continues, even within a file, and fetches what was pushed since. Files that are
    left out are marked as cleaned, so that everything made from them stays fresh. `report` gets
    (tables so far, tables in all).

    Raises ValueError for a name that no run can have, if the mirror has no such run, if this store
    has another run of this name, or if tables differ; Damaged for anything that no push writes, or
    a file with another hash; RuntimeError if the bucket fails.
    """
    check_run_name(run)
    pulled = PullCounts()
    fetched = store.root / "unfinished" / FETCHED / run
    with transfers(store, run, "pulled") as threads:
        _check_owner(store, run, bucket)
        pushed, kept = addresses(bucket, run)
        recipes = dict(zip(pushed, threads.map(partial(_recipe, bucket), pushed), strict=True))
        pushed.sort(key=lambda address: recipes[address].get("started_at", 0.0))
        differing: list[str] = []
        for first in range(0, len(pushed), TABLES_AT_ONCE):
            some = pushed[first : first + TABLES_AT_ONCE]
            wanted: dict[str, list[str]] = {}
            for address in some:
                if _differs(store, address, recipes[address]) and not replace_rebuilt:
                    differing.append(address)
                else:
                    wanted[address] = _wanted(store, address, recipes[address], kinds)
            entries = [
                (kind_of(recipes[address]["table"], name), recipes[address]["contents"][name])
                for address, names in wanted.items()
                for name in names
            ]
            absent = _fetch_all(store, fetched, bucket, threads, entries, pulled)
            uses = Counter(entry["hash"] for _, entry in entries)
            for address, names in wanted.items():
                here = [
                    name
                    for name in names
                    if recipes[address]["contents"][name]["hash"] not in absent
                ]
                is_new = _publish(store, address, recipes[address], fetched, here, uses)
                pulled.num_tables += is_new
                pulled.num_there += not is_new
            report(min(first + TABLES_AT_ONCE, len(pushed)), len(pushed))
        pulled.changed = _pull_kept(store, run, bucket, kept)
        shutil.rmtree(fetched, ignore_errors=True)
    if differing:
        raise ValueError(
            f"{len(differing)} table(s) of {run!r} differ from those in the mirror, the first is"
            f" {differing[0]}: they were rebuilt here or there. `--replace` puts the mirror's in"
            " their place; all others are here now"
        )
    return pulled


def _check_owner(store: Store, run: str, bucket: ObjectStore) -> None:
    """Claim the name in this store for the mirror's run.

    Raises ValueError if there is no such run, or if this store has another one of that name.
    """
    owner = owner_of(bucket, run)
    if owner is None:
        raise ValueError(f"there is no run {run!r} in the mirror")
    own = store.kept(run, OWNER)
    if own is None:
        if store.folder(run).exists():
            raise ValueError(
                f"this store has another run called {run!r}: pull into another store"
                " (SELFPLAY_STORE=FOLDER selfplay pull ...)"
            )
        store.keep(run, OWNER, {"id": owner.id, "kept": {}})
    elif own.get("id") != owner.id:
        raise ValueError(
            f"the run {run!r} of this store is not the mirror's, which was pushed from"
            f" {owner.host}: pull into another store (SELFPLAY_STORE=FOLDER selfplay pull ...)"
        )


def _recipe(bucket: ObjectStore, address: str) -> Recipe:
    recipe = read_json(bucket, recipe_key(address))
    if recipe is None:
        raise RuntimeError(f"{address} vanished from the mirror: repeat the command")
    return check_recipe(address, recipe)


def _differs(store: Store, address: str, recipe: Recipe) -> bool:
    table = store.find(address)
    return table is not None and without_marks(table.recipe) != without_marks(recipe)


def _wanted(store: Store, address: str, recipe: Recipe, kinds: Collection[str]) -> list[str]:
    """The files to fetch: of the wanted kinds, and not yet here with the published size."""
    names = [
        name
        for name, entry in recipe["contents"].items()
        if not entry.get("cleaned") and kind_of(recipe["table"], name) in (ROWS, *kinds)
    ]
    here = store.find(address)
    if here is None or _differs(store, address, recipe):
        return names
    return [
        name
        for name in names
        if here.contents[name].get("cleaned")
        or not _has(here.folder / name, recipe["contents"][name]["bytes"])
    ]


def _has(path: Path, num_bytes: int) -> bool:
    try:
        return path.stat().st_size == num_bytes
    except FileNotFoundError:
        return False


# --- files -----------------------------------------------------------------------------------


def _fetch_all(
    store: Store,
    folder: Path,
    bucket: ObjectStore,
    threads: ThreadPoolExecutor,
    entries: Iterable[tuple[str, dict[str, Any]]],
    pulled: PullCounts,
) -> set[str]:
    """Fetch files into `folder`, named by their hash; returns the hashes of optional ones that
    nobody pushed.

    No other pull may use the folder meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_hash = {entry["hash"]: (kind, entry) for kind, entry in entries}
    absent = set()
    with store.writable():
        sizes = threads.map(
            lambda job: _fetch(bucket, folder, job[1], is_optional=job[0] != ROWS),
            by_hash.values(),
        )
        for (kind, entry), num_bytes in zip(by_hash.values(), sizes, strict=True):
            if num_bytes is None:
                absent.add(entry["hash"])
                pulled.absent[kind] += 1
            else:
                pulled.num_files += 1
                pulled.num_bytes += num_bytes
    return absent


def _fetch(
    bucket: ObjectStore, folder: Path, entry: dict[str, Any], is_optional: bool
) -> int | None:
    """Fetch one file and check it against its hash; returns the bytes that came over the network.

    Returns None if an optional file is not in the mirror. Raises Damaged if any other file is not,
    or if the hash differs.
    """
    import obstore

    path = folder / entry["hash"]
    if path.exists():  # it got this name after it was verified
        return 0
    key = object_key(entry["hash"])
    try:
        size = obstore.head(bucket, key)["size"]
    except FileNotFoundError:
        if is_optional:
            return None
        raise Damaged(
            f"{key} is lost from the mirror: `selfplay push` from a store that has the run"
            " restores it, after its table's recipe.json is removed there"
        ) from None
    if size != entry["bytes"]:
        raise _not_what_was_pushed(key, f"it has {size} bytes, not {entry['bytes']}")
    arriving = path.with_suffix(".partial")
    before = _arrived(arriving, size)
    with open(arriving, "ab") as file:
        for start in range(before, size, RANGE_BYTES):
            end = min(start + RANGE_BYTES, size)
            file.write(obstore.get_range(bucket, key, start=start, end=end))
            file.flush()
    if hash_file(arriving) != entry["hash"]:
        arriving.unlink()
        raise _not_what_was_pushed(key, "its bytes changed")
    os.rename(arriving, path)
    return size - before


def _arrived(path: Path, size: int) -> int:
    """The number of bytes that are here of an interrupted file; one that is too long is removed."""
    if not path.exists():
        return 0
    arrived = path.stat().st_size
    if arrived > size:
        path.unlink()
        return 0
    return arrived


def _not_what_was_pushed(key: str, why: str) -> Damaged:
    return Damaged(
        f"{key} in the mirror is not what was pushed: {why}. Remove it and its table's recipe.json"
        " there, then `selfplay push` again from a store that has the run"
    )


# --- tables ----------------------------------------------------------------------------------


def _publish(
    store: Store,
    address: str,
    recipe: Recipe,
    fetched: Path,
    names: Sequence[str],
    uses: Counter[str],
) -> bool:
    """Publish a table with the fetched files `names`, or add them to it; False if it was here."""
    here = store.find(address)
    with store.lock(address), store.writable():
        if here is not None and not _differs(store, address, recipe):
            if names:
                _add(store, here, fetched, names, uses)
            return False
        schema = TABLES[recipe["table"]]
        with store.draft(schema) as draft:
            _place(fetched, draft.folder, recipe["contents"], names, uses)
            _check_rows(draft.folder, schema, recipe)
            if not any(draft.files.iterdir()):
                draft.files.rmdir()
            contents = {
                name: entry if name in names else {"cleaned": time.time(), **entry}
                for name, entry in recipe["contents"].items()
            }
            store.adopt(draft, address, {**recipe, "contents": contents})
    return True


def _add(
    store: Store, table: Table, fetched: Path, names: Sequence[str], uses: Counter[str]
) -> None:
    """Add files to a published table that left them out or lost them."""
    _place(fetched, table.folder, table.contents, names, uses)
    contents = {
        name: {key: value for key, value in entry.items() if key != "cleaned" or name not in names}
        for name, entry in table.contents.items()
    }
    if contents != table.contents:
        store.amend(table.address, {**table.recipe, "contents": contents})


def _place(
    fetched: Path,
    folder: Path,
    contents: dict[str, dict[str, Any]],
    names: Sequence[str],
    uses: Counter[str],
) -> None:
    """Move fetched files to their names.

    A file that several tables have is copied for all but the last.
    """
    for name in names:
        entry = contents[name]
        source = fetched / entry["hash"]
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        uses[entry["hash"]] -= 1
        if uses[entry["hash"]]:
            fresh = source.with_suffix(".copy")
            shutil.copyfile(source, fresh)
            source = fresh
        os.utime(source, ns=(entry["mtime_ns"], entry["mtime_ns"]))
        os.replace(source, place)


def _check_rows(folder: Path, schema: Schema, recipe: Recipe) -> None:
    """Raise Damaged unless the parts are Parquet files with columns of the table, and its rows."""
    parts = [
        name
        for name, entry in recipe["contents"].items()
        if not name.startswith(f"{FILES}/") and not entry.get("cleaned")
    ]
    num_rows = 0
    for name in parts:
        where = f"{name} of the table {schema.name} in the mirror"
        try:
            with pq.ParquetFile(folder / name) as file:
                columns = file.schema_arrow
                num_rows += file.metadata.num_rows
        except (pa.ArrowInvalid, OSError) as problem:
            raise Damaged(f"{where} is no Parquet file: {str(problem)[:200]}") from None
        for column in columns:
            position = schema.arrow.get_field_index(column.name)
            if position < 0 or schema.arrow.field(position).type != column.type:
                raise Damaged(f"{where} has a column {column.name} of type {column.type}")
    has_all = len(parts) == sum("/" not in name for name in recipe["contents"])
    if has_all and num_rows != recipe["num_rows"]:
        raise Damaged(
            f"a table {schema.name} in the mirror has {num_rows} rows, its recipe says"
            f" {recipe['num_rows']}"
        )


def _pull_kept(store: Store, run: str, bucket: ObjectStore, names: Sequence[str]) -> list[str]:
    """Fetch what the run keeps beside its tables; returns the names of what changed here since.

    The reason why it stopped is dropped here if the run was continued, here or where it was pushed
    from.
    """
    own = store.kept(run, OWNER) or {}
    before = own.get("kept", {})
    changed = []
    for name in sorted(names):
        value = read_json(bucket, kept_key(run, name))
        if value is None:  # removed meanwhile
            continue
        here = store.kept(run, name)
        if name == STOPPED and here is None and hash_json(value) == before.get(name):
            continue
        if here is not None and here != value and hash_json(here) != before.get(name):
            changed.append(name)
            continue
        if here != value:
            store.keep(run, name, value)
        before = {**before, name: hash_json(value)}
    if STOPPED in before and STOPPED not in names:
        here = store.kept(run, STOPPED)
        if here is not None and hash_json(here) == before[STOPPED]:
            (store.folder(run) / STOPPED).unlink()
        before = {name: known for name, known in before.items() if name != STOPPED}
    store.keep(run, OWNER, {**own, "kept": before})
    return changed
