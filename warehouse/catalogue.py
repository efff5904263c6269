"""The published tables of a store, cached for a server.

A recipe is read again only if it changed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warehouse.address import by_number
from warehouse.draft import RECIPE
from warehouse.query import EMPTY
from warehouse.store import Store
from warehouse.table import Table, read_recipe

FRESH_S = 1.0  # how long the listing of a run is cached
HEAVY = ("code", "params")  # parts of a recipe that would fill a server's memory


class Catalogue:
    """Tables of runs, known by their recipes. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._read: dict[str, tuple[int, Table]] = {}
        self._listed: dict[str, tuple[float, list[Table]]] = {}
        self._lock = threading.Lock()

    def runs(self) -> list[str]:
        """Names of all runs, the most recently written first."""
        by_time = [
            (entry.stat().st_mtime, entry.name)
            for entry in os.scandir(self.store.runs)
            if entry.is_dir()
        ]
        return [name for _, name in sorted(by_time, reverse=True) if name != EMPTY]

    def tables(self, run: str) -> list[Table]:
        """The published tables of a run, ordered by address; empty for a run that does not exist.

        Their recipes lack the `HEAVY` parts and gain `sources`, which maps the address of every
        table that was read to its content hash at that time (None for a policy).
        """
        with self._lock:
            at, tables = self._listed.get(run, (0.0, []))
            if time.monotonic() - at > FRESH_S or not at:
                tables = list(self._list(run))
                self._listed[run] = (time.monotonic(), tables)
            return tables

    def forget(self) -> None:
        """Drop the cached listings."""
        with self._lock:
            self._listed.clear()

    def related(self, run: str, address: str) -> list[Table]:
        """All tables of a run that can refer to rows of the table at an address.

        These are the table itself, all tables that it was made from, and all that were made from
        it, directly or not. A table whose recipe records no inputs, such as one that no stage made,
        counts as related.

        Policies do not relate tables: the rollouts that a policy sampled are unrelated to the batch
        it was trained on.
        """
        tables = {table.address: table for table in self.tables(run)}
        above = {
            a: [s for s, content in t.recipe["sources"].items() if content]
            for a, t in tables.items()
        }
        below: defaultdict[str, list[str]] = defaultdict(list)
        for made, sources in above.items():
            for source in sources:
                below[source].append(made)
        unknown = {a for a, t in tables.items() if "inputs" not in t.recipe}
        if address in unknown:
            return list(tables.values())
        near = _reached(address, above) | _reached(address, below) | unknown
        return [t for a, t in tables.items() if a in near]

    def _list(self, run: str) -> Iterator[Table]:
        for folder, folders, files in os.walk(self.store.folder(run)):
            folders.sort(key=by_number)
            if RECIPE in files:
                folders.clear()
                table = self._table(folder)
                if table:
                    yield table

    def _table(self, folder: str) -> Table | None:
        path = os.path.join(folder, RECIPE)
        try:
            changed = os.stat(path).st_mtime_ns
            known = self._read.get(folder)
            if known and known[0] == changed:
                return known[1]
            recipe = read_recipe(Path(path))
        except (FileNotFoundError, ValueError):  # being removed, truncated, or changed
            return None
        light = {key: value for key, value in recipe.items() if key not in HEAVY}
        light["sources"] = dict([*_sources(recipe.get("inputs")), *_sources(recipe.get("params"))])
        table = Table(self.store.root, Path(folder).relative_to(self.store.runs).as_posix(), light)
        self._read[folder] = (changed, table)
        return table


def _reached(start: str, edges: Mapping[str, list[str]]) -> set[str]:
    reached = {start}
    todo = [start]
    while todo:
        new = [a for a in edges.get(todo.pop(), []) if a not in reached]
        reached.update(new)
        todo += new
    return reached


def _sources(value: Any) -> Iterator[tuple[str, str | None]]:
    """Yield (address, content hash) of tables in a part of a recipe, (id, None) of policies."""
    if isinstance(value, dict):
        address = value.get("address")
        policy = value.get("id")
        if "content_hash" in value and isinstance(address, str):
            yield address, value["content_hash"]
        elif "content_hash" in value and "address" not in value and isinstance(policy, str):
            yield policy, None
        else:
            for item in value.values():
                yield from _sources(item)
    elif isinstance(value, list):
        for item in value:
            yield from _sources(item)
