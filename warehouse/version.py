"""The schema version of a store.

It says which columns its tables were written with, and so whether this code can read them.

`<store>/schema.json` holds a small integer, a hash of all columns, and the columns of every table:
`{"version": 3, "hash": "...", "tables": {"tasks": {"task_id": "string", "text": "string or
null"}}}`.

- A store stays readable if the only changes are new nullable columns, and columns that became
  nullable: rows written earlier have null in the new columns. Opening such a store updates its
  record. A stage is stale if the columns of its own table changed; a run rebuilds it when it gets
  there.
- Any other change (a column removed, renamed, of another type or meaning, or added without nulls)
  needs a new VERSION here and a line below. A store of another version is refused with
  `IncompatibleStore`, which says what to do.
- A store whose record is lost or damaged gets a new one if all its tables have this code's columns
  according to their recipes. Otherwise it counts as version 1.

Versions:
1. before versions were recorded
2. nulls in place of fillers; selections count num_correct of num_judged; tasks have a difficulty,
   scores a score
3. the tables `scores` and `rewards` are called `rewards` and `advantages`, the column `total`
   `reward`
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warehouse.draft import RECIPE, hash_json, write_json
from warehouse.schemas import TABLES

VERSION = 3
RECORD = "schema.json"
Tables = dict[str, dict[str, str]]  # table -> column -> type


class IncompatibleStore(ValueError):
    """A store with columns that this code does not have, or without some that it needs."""


def columns() -> Tables:
    """The columns of this code's tables."""
    return {
        name: {c.name: f"{c.type}{' or null' if c.nulls else ''}" for c in schema.columns}
        for name, schema in TABLES.items()
    }


def check_version(root: Path, runs: Path) -> None:
    """Record the version of a new or readable store; raise IncompatibleStore for any other.

    `runs` is the folder of its tables. If the record cannot be updated, as in a read-only store, it
    stays as it is.
    """
    before = _recorded(root)
    if before is None and any(_tables_of(runs)):
        if not _are_ours(runs):
            raise IncompatibleStore(_way_out(root, 1, []))
        before = {"version": VERSION, "tables": {}}  # only the record was lost
    tables = columns()
    if before is None:
        _write(root, tables)
        return
    if before["version"] != VERSION:
        raise IncompatibleStore(_way_out(root, before["version"], []))
    changed = list(incompatible(before["tables"], tables))
    if changed:
        raise IncompatibleStore(_way_out(root, VERSION, changed))
    now = {**before["tables"], **tables}
    if now != before["tables"]:
        with contextlib.suppress(OSError):
            _write(root, now)


def incompatible(before: Tables, now: Tables) -> Iterator[str]:
    """Yield why rows of `before` cannot be read as rows of `now`.

    A table that only one of them has does not matter.
    """
    for table in before.keys() & now.keys():
        then = before[table]
        needed = now[table]
        for name, kind in then.items():
            if name not in needed:
                yield f"{table}.{name} is gone"
            elif needed[name] not in (kind, f"{kind} or null"):
                yield f"{table}.{name} was {kind}, is {needed[name]}"
        for name in needed.keys() - then.keys():
            if not needed[name].endswith(" or null"):
                yield f"{table}.{name} is new and never null"


def _recorded(root: Path) -> dict[str, Any] | None:
    """The record; None if it is lost or damaged."""
    try:
        record = json.loads((root / RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("version"), int):
        return None
    tables = record.get("tables")
    is_whole = isinstance(tables, dict) and all(isinstance(of, dict) for of in tables.values())
    return record if is_whole else None


def _tables_of(runs: Path) -> Iterator[Path]:
    """The recipes of all tables."""
    for run in runs.iterdir():
        if not run.name.startswith("_"):
            yield from run.rglob(RECIPE)


def _are_ours(runs: Path) -> bool:
    """Whether the recipes of all tables name this code's columns."""
    ours = {name: hash_json(str(schema.arrow)) for name, schema in TABLES.items()}
    for path in _tables_of(runs):
        try:
            recipe = json.loads(path.read_bytes())
            is_ours = recipe["columns"] == ours[recipe["table"]]
        except (ValueError, KeyError, TypeError):
            return False
        if not is_ours:
            return False
    return True


def _write(root: Path, tables: Tables) -> None:
    fresh = root / "tmp" / f"{uuid.uuid4().hex}.json"
    write_json(fresh, {"version": VERSION, "hash": hash_json(tables), "tables": tables})
    os.replace(fresh, root / RECORD)


def _way_out(root: Path, version: int, changed: list[str]) -> str:
    what = ""
    todo = "Read it with the code that wrote it"
    if version > VERSION:
        todo = "Update selfplay"
    elif changed:
        what = f" ({'; '.join(sorted(changed)[:3])})"
    return (
        f"the store {root} was written with version {version} of the schema, this code reads"
        f" version {VERSION}{what}. {todo}, or start another store: set SELFPLAY_STORE, or move"
        f" this one away (mv {root} {root}-v{version})"
    )


if __name__ == "__main__":
    print(json.dumps({"version": VERSION, "tables": columns()}, indent=1))
