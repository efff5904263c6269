"""Views for one statement, over the files of the tables that it names.

A view of `warehouse.duckdb` searches every folder of every run for its files, and so does every
view that it is built on: over hundreds of runs, a query takes minutes even if it names one table.
These views list their files, which are found for all of them in one pass over the folders. They are
in the schema `temp`, which DuckDB searches before the views of the file; a view that a statement
does not name stays as it is.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from warehouse.draft import PARTS, RECIPE, hash_json
from warehouse.schemas import Schema

EMPTY = "_empty"  # a run of zero-row tables, so that every glob of a view matches a file
NAME = re.compile(r"[a-z_]+")
DESCRIBING = re.compile(r"information_schema|duckdb_\w+\s*\(|pg_catalog|show\s", re.IGNORECASE)


def needed(statement: str, made_of: dict[str, str]) -> list[str]:
    """The views that a statement names and those that they are built on, in the order of `made_of`.

    `made_of` has the SQL of every view by name. The list is empty for a statement that may list
    views, because each would appear twice.

    >>> made_of = {"a": "from 'file'", "b": "from a", "c": "from a"}
    >>> needed("select * from B", made_of)
    ['a', 'b']
    """
    if DESCRIBING.search(statement):
        return []
    reached = set[str]()
    todo = [statement]
    while todo:
        named = set(NAME.findall(todo.pop().lower())) & made_of.keys()
        todo += [made_of[name] for name in named - reached]
        reached |= named
    return [name for name in made_of if name in reached]


def part_files(runs: Path, kinds: set[str]) -> dict[str, list[str]]:
    """The Parquet files of all published tables of some kinds in the folder `runs`, by kind,
    ordered by path."""
    of_kind: defaultdict[str, list[str]] = defaultdict(list)
    for folder, name in _tables(runs):
        if folder.startswith(f"{runs}/{EMPTY}/"):
            continue
        kind = name.partition(".")[0]
        if kind in kinds:
            of_kind[kind] += [
                f"{folder}/{part}" for part in fnmatch.filter(os.listdir(folder), PARTS)
            ]
    return {kind: sorted(files) for kind, files in of_kind.items()}


def _tables(folder: Path | str) -> Iterator[tuple[str, str]]:
    """Yield path and name of every table's folder below a folder."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):  # removed meanwhile
        return
    for entry in entries:
        if not entry.is_dir():
            continue
        if os.path.exists(f"{entry.path}/{RECIPE}"):
            yield entry.path, entry.name
        else:
            yield from _tables(entry.path)


def have_columns(schema: Schema, files: list[str]) -> bool:
    """Whether the tables of all files have the columns of this code, according to their recipes."""
    ours = hash_json(str(schema.arrow))
    return all(_columns(folder) == ours for folder in {os.path.dirname(file) for file in files})


def source_of(files: list[str], empty: str | None) -> str:
    """The SQL that a view over some files selects from.

    If any file may lack columns, `empty` names a table without rows that has them all; every file
    is then opened twice.
    """
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    if empty is None:
        return f"read_parquet([{listed}], filename = true, hive_partitioning = false)"
    read = (
        f"select * from read_parquet([{listed}], filename = true, hive_partitioning = false,"
        " union_by_name = true)"
    )
    return f"({read} union all by name select * from {empty})"


def _columns(folder: str) -> str | None:
    """The hash of a table's columns from its recipe; None if the recipe cannot be read."""
    try:
        recipe = json.loads(Path(folder, RECIPE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return recipe.get("columns") if isinstance(recipe, dict) else None
