"""Compare two runs of the same name, table by table and row by row.

Numbers may differ by 1e-3: an interrupted generation is computed in other batches, in which float32
sums round differently (log-probabilities by about 1e-6), and training propagates the difference.
Everything discrete must be the same, token by token; times are ignored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from warehouse.store import Store, Table

TIMES = {"duration_s", "peak_bytes", "seconds", "started_at"}
TOLERANCE = 1e-3


@dataclass
class Comparison:
    """How the tables of a run differ from those of the undisturbed run."""

    rows_lost: int = 0
    rows_doubled: int = 0
    different: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.rows_lost or self.rows_doubled or self.different)


def compare(untouched: Store, other: Store, run: str) -> Comparison:
    found = Comparison()
    tables = {t.address: t for t in other.tables(run)}
    for table in untouched.tables(run):
        twin = tables.pop(table.address, None)
        if twin is None:
            found.rows_lost += table.num_rows
            found.different.append(f"{table.address} is missing")
            continue
        keys = _keys(table)
        twin_keys = _keys(twin)
        found.rows_lost += (keys - twin_keys).total()
        found.rows_doubled += (twin_keys - keys).total()
        for number, (row, twin_row) in enumerate(zip(table.rows(), twin.rows(), strict=False)):
            if where := next(differences(row, twin_row), None):
                found.different.append(f"{table.address} row {number}: {where}")
                break
    found.different += [f"{address} is new" for address in tables]
    return found


def _keys(table: Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(str(row[name]) for name in table.schema.key) for row in table.rows())


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two rows differ beyond times and rounding.

    >>> list(differences({"a": [1.0, "x"]}, {"a": [1.0000001, "y"]}))
    ['a.1: x, y']
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for name in (one.keys() | other.keys()) - TIMES:
            yield from differences(one.get(name), other.get(name), f"{where}.{name}".lstrip("."))
    elif (
        isinstance(one, (list, tuple))
        and isinstance(other, (list, tuple))
        and len(one) == len(other)
    ):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{where}.{i}")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{where}: {one}, {other}"
    elif where.split(".")[-1] != "policy_hash" and one != other:
        yield f"{where}: {str(one)[:80]}, {str(other)[:80]}"
