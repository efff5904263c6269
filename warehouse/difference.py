"""Where two runs begin to differ: the first table whose recipe or rows are not the same, and why.

Ids and sampling seeds derive from addresses, which begin with the run's name. So rows are compared
without seeds and run names, and every id of one run must map to the same id of the other wherever
either appears.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from warehouse.address import no_run
from warehouse.freshness import inputs
from warehouse.provenance import recipe_differences, within
from warehouse.schemas import Row
from warehouse.store import Store
from warehouse.table import Table

SEED = "seed"
ID = re.compile(r"[0-9a-f]{32}")  # as `hash_json` writes it
NOTHING = "(none)"


@dataclass(frozen=True)
class Difference:
    """The first table that differs. `equal` is the number of tables before it that are the same.

    `parts` has one row per part of its recipe that differs: what, name, one, other. If the recipes
    are the same, `row` is the number of the first row that differs, from 0, and `columns` lists the
    columns that differ in it: column, one, other.
    """

    place: str
    equal: int
    parts: list[Row] = field(default_factory=list)
    row: int | None = None
    columns: list[Row] = field(default_factory=list)


class Ids:
    """A one-to-one mapping between the ids of two runs, built up in the order in which they appear.

    >>> ids = Ids()
    >>> one, other, third = "0" * 32, "1" * 32, "2" * 32
    >>> ids.are_same(one, other), ids.are_same(one, other), ids.are_same(one, third)
    (True, True, False)
    """

    def __init__(self) -> None:
        self._theirs: dict[str, str] = {}
        self._ours: dict[str, str] = {}

    def are_same(self, one: Any, other: Any) -> bool:
        """Whether two values are equal, or are ids that map to each other."""
        if isinstance(one, list) and isinstance(other, list):
            pairs = zip_longest(one, other)
            return len(one) == len(other) and all(self.are_same(*pair) for pair in pairs)
        if one == other or not (isinstance(one, str) and isinstance(other, str)):
            return one == other
        if not (ID.fullmatch(one) and ID.fullmatch(other)):
            return False
        theirs = self._theirs.setdefault(one, other)
        ours = self._ours.setdefault(other, one)
        return theirs == other and ours == one


def first_difference(store: Store, one: str, other: str) -> tuple[Difference | None, int]:
    """Find the first difference between two runs.

    Returns it, None if there is none, and the number of equal tables before it. Tables are compared
    in the order in which `one` made them. Raises ValueError for a run that does not exist, Cleaned
    if rows to compare were removed.
    """
    theirs = {within(table.address): table for table in _in_order(store, other)}
    num_equal = 0
    ids = Ids()
    for table in _in_order(store, one):
        place = within(table.address)
        counterpart = theirs.pop(place, None)
        if counterpart is None:
            return Difference(place, num_equal, [_only_in(place, "made", NOTHING)]), num_equal
        difference = _compare(table, counterpart, num_equal, (f"{one}/", f"{other}/"), ids)
        if difference is not None:
            return difference, num_equal
        num_equal += 1
    for place in theirs:
        return Difference(place, num_equal, [_only_in(place, NOTHING, "made")]), num_equal
    return None, num_equal


def _in_order(store: Store, run: str) -> list[Table]:
    orphaned = store.orphaned(run)
    tables = [table for table in store.tables(run) if table.address not in orphaned]
    if not tables:
        raise no_run(run)
    return sorted(tables, key=lambda table: table.recipe.get("started_at", 0.0))


def _only_in(place: str, one: str, other: str) -> Row:
    return {"what": "table", "name": place, "one": one, "other": other}


def _compare(
    table: Table, counterpart: Table, num_equal: int, own: tuple[str, str], ids: Ids
) -> Difference | None:
    """The difference between two tables, or None.

    `own` holds the prefixes of both runs' ids and addresses, since a fork's rows and recipes may
    name the run it came from.
    """
    place = within(table.address)
    parts = [
        *recipe_differences(table, counterpart),
        *_input_differences(table, counterpart, own),
    ]
    if parts:
        return Difference(place, num_equal, parts)
    if table.content_hash == counterpart.content_hash:
        return None
    pairs = zip_longest(_rows(table, own), _rows(counterpart, own))
    for number, (row, their_row) in enumerate(pairs):
        columns = _column_differences(row, their_row, ids)
        if columns:
            return Difference(place, num_equal, row=number, columns=columns)
    return None


def _input_differences(table: Table, counterpart: Table, own: tuple[str, str]) -> Iterator[Row]:
    """Inputs that only one of two tables has, or that other runs made with other rows.

    The runs' own tables were compared before, row by row.
    """
    before = _inputs(table, own)
    now = _inputs(counterpart, own)
    for name in [*before, *(name for name in now if name not in before)]:
        if before.get(name) != now.get(name):
            yield {
                "what": "input",
                "name": name,
                "one": before.get(name, NOTHING),
                "other": now.get(name, NOTHING),
            }


def _inputs(table: Table, own: tuple[str, str]) -> dict[str, str]:
    hash_of: dict[str, str] = {}
    for address, content_hash in inputs(table.recipe):
        if address.startswith(own):
            hash_of[within(address)] = "read"
        else:
            hash_of[address] = content_hash
    return hash_of


def _rows(table: Table, own: tuple[str, str]) -> Iterator[Row]:
    for batch in table.batches():
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield {name: _renamed(value, own) for name, value in row.items() if name != SEED}


def _renamed(value: Any, own: tuple[str, str]) -> Any:
    """The value with the run's name removed from the beginning of every id."""
    if isinstance(value, str):
        return within(value) if value.startswith(own) else value
    if isinstance(value, list):
        return [_renamed(item, own) for item in value]
    if isinstance(value, dict):
        return {key: _renamed(item, own) for key, item in value.items()}
    return value


def _column_differences(row: Row | None, their_row: Row | None, ids: Ids) -> list[Row]:
    if row is None or their_row is None:
        return [
            {
                "column": "(the whole row)",
                "one": NOTHING if row is None else "present",
                "other": NOTHING if their_row is None else "present",
            }
        ]
    return [
        {"column": name, "one": value, "other": their_row[name]}
        for name, value in row.items()
        if not _is_same(name, value, their_row[name], ids)
    ]


def _is_same(column: str, value: Any, theirs: Any, ids: Ids) -> bool:
    if column.endswith(("_id", "_ids")):
        return ids.are_same(value, theirs)
    both_nan = value != value and theirs != theirs
    return value == theirs or both_nan
