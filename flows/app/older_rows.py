"""Rows of a study's tables from earlier runs, which were not kept.

A study that was extended, for instance to more held-out questions, is repeated variant by variant.
Until a variant's turn comes, the tables show its older row, marked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from warehouse.schemas import Row

NOT_KEPT = ", not kept"


def read_rows(path: Path) -> list[Row]:
    """The rows of a study's `-claims.jsonl`: claims, then variants; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def with_older(
    rows: Sequence[Row], older: Sequence[Row], key: str, wanted: Mapping[str, Mapping[str, Any]]
) -> list[Row]:
    """`rows` in the order of `wanted`, with the older row of each name in `key` that has none.

    `wanted` holds what an older row must say besides its name, because a row about another number
    or another threshold would answer another question. All rows get the same columns.

    >>> rows = with_older(
    ...     [{"claim": "it learns", "seeds": "8"}],
    ...     [{"claim": "it learns", "seeds": "3"}, {"claim": "it ends", "seeds": "3 of 8"}],
    ...     "claim",
    ...     {"it ends": {}, "it learns": {}},
    ... )
    >>> [(row["claim"], row["seeds"]) for row in rows]
    [('it ends', '3 of 8, not kept'), ('it learns', '8')]
    """
    new_of = {row[key]: row for row in rows}
    older_of = {
        row[key]: row
        for row in older
        if row.get(key) in wanted and wanted[row[key]].items() <= row.items()
    }
    names = [name for name in wanted if name in new_of or name in older_of]
    found = [new_of.get(name) or _marked(older_of[name]) for name in names]
    columns = dict.fromkeys(chain.from_iterable(found))
    return [{column: row.get(column, "–") for column in columns} for row in found]


def _marked(row: Row) -> Row:
    return {**row, "seeds": row["seeds"].removesuffix(NOT_KEPT) + NOT_KEPT}
