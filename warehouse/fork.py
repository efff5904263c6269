"""Fork a run after an iteration.

The new run shares the files of the tables up to that iteration and rebuilds none of them.

The files are hard links, so nothing is copied. Cleaning or rebuilding a table of one run does not
affect the other: published files are replaced or removed, never edited. Recipes are copied, with
the new run's name in the addresses of inputs. Tables of the shared iterations are marked as
inherited: they stay fresh whatever the settings are now (`Freshness`), so a fork can continue with
other settings from the next iteration on. Tables outside iterations follow the usual rule, which
finds them fresh under the new name.

Rows are unchanged: a policy that the first run trained keeps that run's name, and seeds derived
from addresses are the ones used for sampling. `Table.file` finds a policy's files at its table's
current address.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.address import check_run_name, no_run
from warehouse.draft import ALIVE, RECIPE, write_json, write_recipe
from warehouse.freshness import INHERITED, key_of
from warehouse.store import Store
from warehouse.table import Damaged, Table, check_iteration

FORK = "fork.json"
NOTE = (
    "Tables of the shared iterations keep the rows, ids and seeds that they were made with, and"
    " stay fresh whatever the settings are now. Seeds of later tables derive from this run's own"
    " addresses."
)
# stage parameters whose values begin with the run's name
OWN_ADDRESSES = ("address", "optimizer_state")


@dataclass(frozen=True)
class Fork:
    """What a fork shares with its source."""

    num_tables: int
    num_bytes: int


def check(store: Store, run: str, new: str, iteration: int) -> None:
    """Raise ValueError if the run or iteration does not exist or has files still to be written, or
    if the name `new` is taken or invalid."""
    _shared(store, run, iteration)
    if store.folder(check_run_name(new)).exists():
        raise ValueError(f"there is a run {new!r} already; fork {run!r} under another name")


def fork(store: Store, run: str, new: str, iteration: int, kept: dict[str, Any]) -> Fork:
    """Make the run `new` from `run` up to and including an iteration, all or nothing.

    `kept` holds the JSON files to write beside its tables, by name.

    Raises ValueError as `check` does, Damaged for a table that lost files, RuntimeError for one
    that is being built.
    """
    check(store, run, new, iteration)
    shared = _shared(store, run, iteration)
    origin = {"run": run, "iteration": iteration, "at": time.time()}
    with _staged(store) as folder:
        for table in shared:
            with store.lock(table.address):
                _share(
                    store.get(table.address),
                    folder / table.address.removeprefix(f"{run}/"),
                    new,
                    origin,
                )
        if [t.recipe for t in shared] != [t.recipe for t in _shared(store, run, iteration)]:
            raise RuntimeError(
                f"tables of {run!r} were rebuilt meanwhile: repeat the command when they are done"
            )
        for name, value in {**kept, FORK: {**origin, "note": NOTE}}.items():
            write_json(folder / name, value)
        os.rename(folder, store.folder(new))
    tables = list(store.tables(new))
    return Fork(
        len(tables), sum(entry["bytes"] for table in tables for entry in _present(table).values())
    )


def check_own(store: Store, addresses: Iterable[str]) -> None:
    """Raise ValueError if any of the tables is inherited.

    Tables that depend on it would not be rebuilt.
    """
    for address in sorted(addresses):
        origin = store.get(address).recipe.get(INHERITED)
        if origin:
            raise ValueError(
                f"{address} is shared with {origin['run']!r}, which was forked after iteration"
                f" {origin['iteration']}: name a later iteration by --iteration, or rerun it in"
                f" {origin['run']!r} and fork that again"
            )


def _shared(store: Store, run: str, iteration: int) -> list[Table]:
    """All tables that a fork after an iteration shares.

    These are the tables of this and earlier iterations, and those outside iterations that depend on
    no later one. Orphaned updates are left out, and so are labels, which people gave to the source
    run.
    """
    orphaned = store.orphaned(run)
    tables = [
        table
        for table in store.tables(run)
        if table.address not in orphaned and not table.holds_labels
    ]
    if not tables:
        raise no_run(run)
    check_iteration(run, tables, iteration)
    shared = [table for table in tables if _last_iteration(table) <= iteration]
    for table in shared:
        if table.awaits:
            raise ValueError(
                f"{table.address}/{table.awaits[0]} is not written yet: wait for it, or repeat"
                " `selfplay run` if the run was stopped"
            )
    return shared


def _last_iteration(table: Table) -> int:
    """The iteration of a table.

    For a table outside iterations, the last iteration that its recipe mentions, or -1.
    """
    if table.at.iteration is not None:
        return table.at.iteration
    read = [table.recipe.get("inputs", {}), table.recipe.get("params", {})]
    told = json.dumps(read, ensure_ascii=False)  # a run's name may have letters of any alphabet
    return max(map(int, re.findall(rf'"{re.escape(table.at.run)}/iter-(\d+)', told)), default=-1)


@contextlib.contextmanager
def _staged(store: Store) -> Iterator[Path]:
    """A folder in `tmp/`, marked as alive while this process lives.

    It is removed unless it was renamed.
    """
    folder = store.root / "tmp" / uuid.uuid4().hex
    with store.writable(), open(folder.with_suffix(ALIVE), "w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.unlink(alive.name)


def _share(table: Table, folder: Path, new: str, origin: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)  # even if all files were cleaned away
    for name in _present(table):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(table.folder / name, file)
        except FileNotFoundError:
            raise Damaged(
                f"{table.address}/{name} is lost; repeat `selfplay run` to rebuild it, then fork"
            ) from None
        except OSError:  # a filesystem without hard links
            shutil.copy2(table.folder / name, file)
    recipe = _renamed(table.recipe, table.at.run, new)
    params = dict(recipe.get("params", {}))
    own = f"{table.at.run}/"
    for key in OWN_ADDRESSES:
        value = params.get(key)
        if isinstance(value, str) and value.startswith(own):
            params[key] = f"{new}/{value.removeprefix(own)}"
    recipe["params"] = params
    recipe["key"] = key_of(recipe)
    if table.at.iteration is not None:
        recipe[INHERITED] = origin
    write_recipe(folder / RECIPE, recipe)


def _present(table: Table) -> dict[str, dict[str, Any]]:
    return {name: entry for name, entry in table.contents.items() if not entry.get("cleaned")}


def _renamed(value: Any, run: str, new: str) -> Any:
    """The value with the new run's name in the address of every table of the run."""
    if isinstance(value, list):
        return [_renamed(item, run, new) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"address", "content_hash"} and value["address"].startswith(f"{run}/"):
        return {**value, "address": f"{new}/{value['address'].removeprefix(f'{run}/')}"}
    return {key: _renamed(item, run, new) for key, item in value.items()}
