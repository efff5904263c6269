"""Copy a run into a mirror: files first, the recipe last and only if absent."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from warehouse.address import no_run
from warehouse.draft import SEAL, hash_file, hash_json, seal_of
from warehouse.freshness import inputs
from warehouse.mirror import (
    KEPT,
    OWNER,
    ROWS,
    TABLES_AT_ONCE,
    Owner,
    check_recipe,
    create,
    kept_key,
    kind_of,
    object_key,
    owner_of,
    parse_json,
    read,
    read_json,
    recipe_key,
    replace,
    transfers,
    without_marks,
)
from warehouse.stopped import STOPPED
from warehouse.store import Store, check_recipes
from warehouse.table import Damaged, Table, find_table

if TYPE_CHECKING:
    from obstore.store import ObjectStore


@dataclass
class PushCounts:
    """What a push did."""

    num_tables: int = 0  # published by it
    num_there: int = 0  # published before
    num_files: int = 0
    num_bytes: int = 0
    unfinished: list[str] = field(default_factory=list)  # tables whose files are being written
    other_runs: list[str] = field(default_factory=list)  # whose tables this run was made from


def push(
    store: Store,
    run: str,
    bucket: ObjectStore,
    kinds: Collection[str] = (ROWS,),
    replace_rebuilt: bool = False,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> PushCounts:
    """Copy the published tables of a run, with the files of these `kinds`, into a mirror.

    A repeated push continues: files that are there are not sent again. `replace_rebuilt` lets
    tables that were rebuilt here replace those that were pushed before. `report` gets (tables so
    far, tables in all).

    Raises ValueError if there is no such run, if another run has its name in the mirror, or if
    tables were rebuilt since the last push; Damaged for a file that changed since it was published,
    or a table without an intact recipe; RuntimeError if the bucket fails.
    """
    check_recipes(store.without_recipe(run))
    tables = list(store.tables(run))
    if not tables:
        raise no_run(run)
    # in the order in which they were made: a table in the mirror always has its inputs there, too
    tables.sort(key=lambda table: table.recipe.get("started_at", 0.0))
    pushed = PushCounts(other_runs=sorted(_other_runs(run, tables)))
    with transfers(store, run, "pushed") as threads:
        _own(store, run, bucket)
        rebuilt: list[str] = []
        done = 0
        for first in range(0, len(tables), TABLES_AT_ONCE):
            some = tables[first : first + TABLES_AT_ONCE]
            known = list(threads.map(lambda table: _known(bucket, table.address), some))
            files: dict[str, list[str]] = {}
            for table, there in zip(some, known, strict=True):
                if table.awaits:
                    pushed.unfinished.append(table.address)
                elif _is_other(table, there) and not replace_rebuilt:
                    rebuilt.append(table.address)
                else:
                    pushed_recipe = None
                    if there is not None and not _is_other(table, there):
                        pushed_recipe = there[0]
                    files[table.address] = _files(table, kinds, pushed_recipe)
            jobs = [(table, name) for table in some for name in files.get(table.address, ())]
            for sent in threads.map(lambda job: _send(bucket, *job), jobs):
                pushed.num_bytes += sent
                pushed.num_files += bool(sent)
            for table, there in zip(some, known, strict=True):
                done += 1
                if table.address in files:
                    is_new = _publish(bucket, table, there, files[table.address], rebuilt)
                    pushed.num_tables += is_new
                    pushed.num_there += not is_new
                report(done, len(tables))
        if rebuilt:
            raise ValueError(_rebuilt(run, rebuilt))
        _send_kept(store, run, bucket)
    return pushed


def _own(store: Store, run: str, bucket: ObjectStore) -> None:
    """Claim the run's name in the mirror, or check that the name is this run's.

    Raises ValueError if another run has it.
    """
    own = store.kept(run, OWNER)
    there = owner_of(bucket, run)
    if there is None:
        if own is None:
            own = {"id": Owner.new().id, "kept": {}}
            # before the mirror names it: a push that is killed in between can be repeated
            store.keep(run, OWNER, own)
        claim = dataclasses.replace(Owner.new(), id=own["id"])
        create(bucket, kept_key(run, OWNER), claim.as_json())
        there = owner_of(bucket, run)
    assert there is not None
    if own is None or own["id"] != there.id:
        raise ValueError(
            f"another run is called {run!r} in the mirror, pushed from {there.host}: push to"
            " another prefix, or give this run another name (`selfplay fork`)"
        )


def _known(bucket: ObjectStore, address: str) -> tuple[dict[str, Any], dict[str, str]] | None:
    """The recipe that the mirror has for an address, and the marks of its object."""
    key = recipe_key(address)
    stored = read(bucket, key)
    if stored is None:
        return None
    data, marks = stored
    return parse_json(key, data), marks


def _is_other(table: Table, there: tuple[dict[str, Any], Any] | None) -> bool:
    if there is None:
        return False
    return without_marks(there[0]) != without_marks(json.loads(json.dumps(table.recipe)))


def _files(table: Table, kinds: Collection[str], there: dict[str, Any] | None) -> list[str]:
    """The files to send.

    If the mirror has the table, with the recipe `there`, it already has the rows, unless they are
    marked as cleaned.
    """
    names = []
    for name, entry in table.contents.items():
        kind = kind_of(table.schema.name, name)
        if entry.get("cleaned") or kind not in (ROWS, *kinds):
            continue
        if kind == ROWS and there is not None and not there["contents"][name].get("cleaned"):
            continue
        names.append(name)
    return names


def _send(bucket: ObjectStore, table: Table, name: str) -> int:
    """Send a file unless the mirror has it; returns the bytes that were sent.

    Raises Damaged if it is not what was published.
    """
    import obstore

    entry = table.contents[name]
    key = object_key(entry["hash"])
    try:
        # a key is a hash and objects appear whole, so an object of the same size is the same file
        if obstore.head(bucket, key)["size"] == entry["bytes"]:
            return 0
    except FileNotFoundError:
        pass
    path = table.folder / name
    if not path.is_file() or hash_file(path) != entry["hash"]:
        now = find_table(table.root, table.address)
        if now is None or now.recipe != table.recipe:
            raise RuntimeError(
                f"{table.address} was rebuilt or cleaned while it was being pushed: repeat the"
                " command"
            )
        raise Damaged(
            f"{table.address}/{name} is not what was published (lost or changed); repeat `selfplay"
            " run` to rebuild it, then push again"
        )
    obstore.put(bucket, key, path)
    return entry["bytes"]


def _publish(
    bucket: ObjectStore,
    table: Table,
    there: tuple[dict[str, Any], dict[str, str]] | None,
    sent: Collection[str],
    rebuilt: list[str],
) -> bool:
    """Make a table with its files `sent` visible in the mirror; False if it already was.

    A table that lost the race against another one at its address is added to `rebuilt`.
    """
    key = recipe_key(table.address)
    data = (json.dumps(table.recipe, indent=1, ensure_ascii=False)).encode()
    check_recipe(table.address, json.loads(data))
    if there is None:
        if create(bucket, key, data):
            return True
        there = _known(bucket, table.address)
        if there is None:
            raise RuntimeError(f"{key} vanished from the mirror: repeat the command")
        if _is_other(table, there):
            rebuilt.append(table.address)
            return False
    if _is_other(table, there):
        _replace(bucket, key, data, there[1])
        return True
    recipe = _with_files(there[0], sent)
    if recipe != there[0]:
        _replace(bucket, key, json.dumps(recipe, indent=1, ensure_ascii=False).encode(), there[1])
    return False


def _replace(bucket: ObjectStore, key: str, data: bytes, marks: dict[str, str]) -> None:
    if not replace(bucket, key, data, marks):
        raise RuntimeError(f"{key} was replaced by another push at the same time: repeat yours")


def _with_files(recipe: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A recipe of the mirror that no longer marks the files `names` as cleaned, so that a pull
    fetches them."""
    contents = {
        name: {key: value for key, value in entry.items() if key != "cleaned" or name not in names}
        for name, entry in recipe["contents"].items()
    }
    if contents == recipe["contents"]:
        return recipe
    fuller = {**recipe, "contents": contents}
    return {**fuller, SEAL: seal_of(fuller)}


def _send_kept(store: Store, run: str, bucket: ObjectStore) -> None:
    """Send what the run keeps beside its tables, such as its request.

    The reason why it stopped is removed from the mirror once the run has been continued.
    """
    import obstore

    sent: dict[str, str] = {}
    for path in sorted(store.folder(run).glob("*.json")):
        if path.name == OWNER or not KEPT.fullmatch(path.name):
            continue
        value = store.kept(run, path.name)
        if value is None:  # removed meanwhile
            continue
        data = json.dumps(value, indent=1, ensure_ascii=False).encode()
        there = read(bucket, kept_key(run, path.name))
        if there is None or there[0] != data:
            obstore.put(bucket, kept_key(run, path.name), data)
        sent[path.name] = hash_json(value)
    own = store.kept(run, OWNER) or {}
    known = own.get("kept", {}).get(STOPPED)
    if known is not None and STOPPED not in sent:  # the run was continued
        there = read_json(bucket, kept_key(run, STOPPED))
        if there is not None and hash_json(there) == known:
            obstore.delete(bucket, kept_key(run, STOPPED))
    store.keep(run, OWNER, {**own, "kept": sent})


def _other_runs(run: str, tables: Sequence[Table]) -> set[str]:
    sources = {address for table in tables for address, _ in inputs(table.recipe)}
    return {address.partition("/")[0] for address in sources} - {run}


def _rebuilt(run: str, addresses: Sequence[str]) -> str:
    return (
        f"{len(addresses)} table(s) of {run!r} are not those that were pushed before, the first is"
        f" {addresses[0]}: they were rebuilt here. `--replace` puts them in the place of the old"
        " ones; all others are in the mirror now"
    )
