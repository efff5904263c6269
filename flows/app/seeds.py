"""Draw questions from the training splits of several data sets, for a file of JSON lines.

`SOURCES.toml` has one table per data set: the number of questions, where they are, the revision,
the licence, and what the columns hold. `like` names a benchmark whose entry fills in whatever the
table leaves out.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from pydantic import Field, model_validator

from corpus_prep.read.hub import records_in_dataset
from corpus_prep.read.rows import read_rows
from flows.benchmarks import find
from flows.runtime.hub import check_reachable
from flows.settings.errors import read_toml
from flows.settings.profile import Settings
from tasks.benchmarks.items import Columns, items_of
from warehouse.schemas import Row

FILES = (".jsonl", ".parquet", ".csv", ".json")


class Source(Settings):
    """A data set, and how many questions are drawn from it."""

    name: str = Field(description="name of the source, and of your own file NAME.jsonl")
    count: int = Field(ge=1, description="number of questions to draw")
    like: str | None = Field(
        default=None, description="a benchmark with the same columns, revision and licence"
    )
    source: str = Field(
        default="", description="hf:owner/name?config=...&split=..., without the revision"
    )
    revision: str = Field(default="", description="the commit of `source`")
    licence: str = Field(default="", description="licence of the questions, kept with each of them")
    gated: bool = Field(
        default=False, description="the hub asks you to accept the source's terms first"
    )
    refused: str = Field(default="", description="why no questions are drawn from it")
    columns: Columns = Columns(question=("question",))

    @model_validator(mode="before")
    @classmethod
    def _completed_by_its_benchmark(cls, values: dict[str, Any]) -> dict[str, Any]:
        if not values.get("like"):
            return values
        entry = find(values["like"])
        return {
            "revision": entry.revision,
            "licence": entry.licence,
            "gated": entry.gated,
            "columns": entry.columns,
            **values,
        }

    @model_validator(mode="after")
    def _is_no_benchmark(self) -> Self:
        """Raise ValueError for a split that a benchmark evaluates."""
        split = parse_qs(self.source.partition("?")[2]).get("split", [""])[0]
        if self.source and "train" not in split:
            raise ValueError(
                f"{self.name}: {self.source} is no training split: questions of benchmarks are not"
                " drawn"
            )
        return self

    def rows(self, folder: Path, gated: bool) -> Iterator[Row]:
        """The source's rows: from `folder/NAME.jsonl` (or .parquet, .csv, .json) if that file
        exists, else from the hub.

        Raises ValueError for a source that cannot be read; the message says what to do.
        """
        if self.refused:
            raise ValueError(self.refused)
        for suffix in FILES:
            if (own := folder / f"{self.name}{suffix}").is_file():
                return read_rows(own)
        local = f"or put its training split into {folder / self.name}.jsonl"
        if not self.source:
            raise ValueError(f"no source on the hub is known: {local.removeprefix('or ')}")
        if self.gated and not gated:
            raise ValueError(
                f"gated: accept the terms of {self.source}, log in, and pass --gated, {local}"
            )
        if not self.revision:
            raise ValueError(
                f"no revision of {self.source} is pinned: name one in the sources' file, {local}"
            )
        between = "&" if "?" in self.source else "?"
        pinned = f"{self.source}{between}revision={self.revision}"
        check_reachable(pinned, local)
        return (dict(row.fields) for row in records_in_dataset(pinned))


@dataclass(frozen=True)
class Draw:
    """The result of drawing from a source: its questions, or why there are none."""

    source: Source
    questions: list[Row]
    problem: str | None = None


def read_sources(path: Path) -> list[Source]:
    """The sources listed in a file. Raises ValueError if the file is not such a list."""
    tables = read_toml(path)
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} is no table: write each source as [NAME]")
    if not tables:
        raise ValueError(f"{path} lists no source")
    return [Source.model_validate({"name": name} | table) for name, table in tables.items()]


def draw(source: Source, folder: Path, seed: int, gated: bool = False) -> Draw:
    """Draw `source.count` distinct questions in a seeded order; if that fails, none, and why."""
    try:
        rows = source.rows(folder, gated)
        items = {row["text"]: row for row in items_of(rows, source.name, source.columns)}
    except (ValueError, OSError) as problem:
        return Draw(source, [], str(problem))
    if len(items) < source.count:
        problem = f"has {len(items)} different questions, but {source.count} are wanted"
        return Draw(source, [], problem)
    chosen = random.Random(f"{seed} {source.name}").sample(sorted(items), source.count)
    return Draw(source, [_question(items[text], source) for text in chosen])


def _question(item: Row, source: Source) -> Row:
    """A line of the output file; the other columns that the source lists are copied unchanged."""
    return {
        "question": item["text"],
        "context": item["context"],
        "options": item["options"],
        "answer": next(iter(item["references"]), None),
        **json.loads(item["given"]),
        "source": source.name,
        "licence": source.licence,
    }
