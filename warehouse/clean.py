"""Free disk space in a run.

Removes optimizer states and weights of old steps and, on request, rows of old rollouts.

A removed file stays in its table's recipe with its hash, marked as cleaned: the table and
everything made from it stay fresh. Files are marked before they are removed. If the process is
killed in between, the next cleaning removes them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.address import Address, no_run
from warehouse.draft import FILES, RECIPE, SEAL
from warehouse.schemas import UPDATES, Row
from warehouse.store import Store
from warehouse.table import RUNS, Cleaned, Table, check_iteration, find_table

OPTIMIZER = "optimizer state"
WEIGHTS = "weights"
ROLLOUTS = "rollouts"


@dataclass(frozen=True)
class Removal:
    """Files of one table that may be removed, and why."""

    table: Table
    kind: str
    files: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes that the removal frees; a file shared with a forked run frees none."""
        return sum(
            self.table.contents[name]["bytes"] for name in self.files if not self._is_shared(name)
        )

    def _is_shared(self, name: str) -> bool:
        path = self.table.folder / name
        return path.exists() and path.stat().st_nlink > 1


def removable(
    store: Store, run: str, keep_last: int = 1, keep: Iterable[int] = (), rollouts: bool = False
) -> list[Removal]:
    """List the files that `clean` would remove from a run.

    It keeps the last `keep_last` iterations and those in `keep` whole. Of every other iteration it
    keeps each role's last weights, which later stages and forks start from. It always keeps each
    role's last update, from which the run continues. Rows of rollouts are removed only with
    `rollouts`.

    Orphaned updates do not count as last, and iterations that have no other updates do not count at
    all.

    Raises ValueError for a run or an iteration that does not exist, and for a run that a process is
    working on.
    """
    tables = list(store.tables(run))
    if not tables:
        raise no_run(run)
    keep = set(keep)
    for iteration in sorted(keep):
        check_iteration(run, tables, iteration)
    if store.is_played(run) or any(store.working(run)):
        raise ValueError(f"run {run!r} is in use: clean it once it has ended")
    orphaned = store.orphaned(run)
    iterations = _iterations(tables, orphaned)
    kept = {*keep, *iterations[max(0, len(iterations) - keep_last) :]}
    old = [t for t in tables if t.at.iteration not in (*kept, None)]
    removals = [*_optimizers_and_weights(tables, old, orphaned)]
    if rollouts:
        removals += [Removal(t, ROLLOUTS, t.parts) for t in old if t.schema.name == "rollouts"]
    present = [_only_present(r) for r in removals]
    return [r for r in present if r.files]


def free_superseded(store: Store, update: Table) -> int:
    """Remove what a published update has superseded. Returns the bytes freed.

    That is the optimizer state that it continued from, and the weights beside that state unless
    they are the last of their iteration.

    Reads only that one recipe, however long the run. Removes nothing that another run made, and
    nothing at all if tables were taken as fresh without a check (`Freshness.frees`).
    """
    state = update.recipe["params"]["optimizer_state"]
    if state is None or not store.freshness.frees:
        return 0
    address, _ = _place_of(state)
    if Address.parse(address).run != update.at.run or not _superseded(address, update):
        return 0
    with store.lock(address):
        return sum(_remove(store, removal) for removal in _superseded(address, update))


def check_kept(root: Path, path: Path | str | None, again: str) -> None:
    """Raise Cleaned if the files of a published table at `path` were removed, Damaged if one of
    them is lost or changed.

    `again` names the stage, of the table's phase, that the error says to rerun. Does nothing if
    `path` is None or outside the store at `root`.
    """
    runs = root / RUNS
    if path is None or not Path(path).is_relative_to(runs):
        return
    address, inside = _place_of(Path(path).relative_to(runs).as_posix())
    table = find_table(root, address)
    if table is None:
        return
    if lacks_files(table, inside):
        raise Cleaned(
            f"{inside} of {address} was freed as superseded or by `selfplay clean`, or left out by"
            " `selfplay pull` (repeat that with --weights --optimizer); `selfplay rerun"
            f" {table.at.run} '{table.at.phase}/{again}'` rebuilds it, starting with the phase's"
            " first update"
        )
    table.check_files(inside)


def lacks_files(table: Table, inside: str) -> bool:
    """Whether any file of a table below `inside`, such as `files/update/policy`, was removed."""
    return any(
        entry.get("cleaned")
        for name, entry in table.contents.items()
        if name.startswith(f"{inside}/")
    )


def cleaned(store: Store, run: str) -> Counter[str]:
    """Count the tables of each kind whose rows `remove` has taken."""
    return Counter(table.schema.name for table in store.tables(run) if not table.has_rows)


def remove(store: Store, removals: Iterable[Removal]) -> int:
    """Mark files as cleaned, then remove them; returns the bytes freed.

    A table that was rebuilt after it was listed is left as it is. Raises ValueError if a flow is
    working on the run, RuntimeError if another process is working on a table.
    """
    listed: dict[str, list[Removal]] = {}
    for removal in removals:
        listed.setdefault(removal.table.address, []).append(removal)
    freed = 0
    with contextlib.ExitStack() as held:
        for run in {Address.parse(address).run for address in listed}:
            held.enter_context(store.unplayed(run))
        for address, of_table in listed.items():
            with store.lock(address):
                now = store.find(address)
                if now is None or now.recipe[SEAL] != of_table[0].table.recipe[SEAL]:
                    continue
                freed += sum(_remove(store, removal) for removal in of_table)
    return freed


def summary(removals: list[Removal]) -> list[Row]:
    """One row per iteration (0: outside any) and kind of file.

    Columns: iteration, what, tables, files, MB.
    """
    by_place: dict[tuple[int, str], list[Removal]] = {}
    for removal in removals:
        by_place.setdefault((removal.table.at.iteration or 0, removal.kind), []).append(removal)
    return [
        {
            "iteration": iteration,
            "what": kind,
            "tables": len(group),
            "files": sum(len(r.files) for r in group),
            "MB": round(sum(r.num_bytes for r in group) / 1e6, 2),
        }
        for (iteration, kind), group in sorted(by_place.items())
    ]


def _iterations(tables: list[Table], orphaned: Set[str]) -> list[int]:
    """The iterations that a run has reached, in order."""
    abandoned = {Address.parse(address).iteration for address in orphaned}
    for table in tables:
        if table.schema is UPDATES and table.address not in orphaned:
            abandoned.discard(table.at.iteration)
    there = {table.at.iteration for table in tables} - abandoned
    return sorted(iteration for iteration in there if iteration is not None)


def _optimizers_and_weights(
    tables: list[Table], old: list[Table], orphaned: Set[str]
) -> Iterator[Removal]:
    updates = [t for t in tables if t.schema is UPDATES and t.address not in orphaned]
    last_of_role = {group[-1].address for group in _grouped(updates, lambda at: at.phase)}
    last_of_iteration = {
        group[-1].address for group in _grouped(updates, lambda at: (at.phase, at.iteration))
    }
    for table in old:
        if table.schema is not UPDATES or table.address in last_of_role:
            continue
        yield from _checkpoint(table, weights=table.address not in last_of_iteration)


def _remove(store: Store, removal: Removal) -> int:
    recipe = json.loads((removal.table.folder / RECIPE).read_text())
    for name in removal.files:
        recipe["contents"][name].setdefault("cleaned", time.time())
    store.amend(removal.table.address, recipe)
    freed = removal.num_bytes
    for name in removal.files:
        (removal.table.folder / name).unlink(missing_ok=True)
    return freed


def _superseded(address: str, update: Table) -> list[Removal]:
    """The files to be removed from the checkpoint at `address`, which `update` continued."""
    before = find_table(update.root, address)
    if before is None:
        return []
    removals = map(
        _only_present, _checkpoint(before, weights=before.at.iteration == update.at.iteration)
    )
    return [r for r in removals if r.files]


def _checkpoint(update: Table, weights: bool) -> Iterator[Removal]:
    optimizer = tuple(name for name in update.contents if "/optimizer/" in name)
    yield Removal(update, OPTIMIZER, optimizer)
    if weights:
        yield Removal(
            update,
            WEIGHTS,
            tuple(n for n in update.contents if n not in (*update.parts, *optimizer)),
        )


def _grouped(tables: list[Table], key: Callable[[Address], Any]) -> Iterator[list[Table]]:
    """Tables grouped by a part of their address, each group in the order of `tables`."""
    groups: dict[Any, list[Table]] = {}
    for table in tables:
        groups.setdefault(key(table.at), []).append(table)
    yield from groups.values()


def _only_present(removal: Removal) -> Removal:
    contents = removal.table.contents
    folder = removal.table.folder
    files = tuple(
        n for n in removal.files if not contents[n].get("cleaned") or (folder / n).exists()
    )
    return Removal(removal.table, removal.kind, files)


def _place_of(path: str) -> tuple[str, str]:
    """Split the path of a folder of a table's files into the table's address and the rest.

    >>> _place_of("r/iter-001/a/step-001/updates/files/update/optimizer")
    ('r/iter-001/a/step-001/updates', 'files/update/optimizer')
    """
    address, _, inside = path.partition(f"/{FILES}/")
    return address, f"{FILES}/{inside}"
