"""The averages that papers report over several benchmarks: one file per paper in papers/."""

from __future__ import annotations

import tomllib
from typing import Any

from pydantic import Field

from flows.benchmarks import FOLDER
from flows.settings.profile import Settings

NOTES = "notes"


class Average(Settings):
    """The mean of the scores of several benchmarks."""

    of: tuple[str, ...] = Field(
        min_length=1,
        description="benchmarks, or BENCHMARK/KIND, or averages defined above this one",
    )
    published: dict[str, float] = Field(
        default={}, description="model to score, 0..1, as published in the paper"
    )


def averages_of(paper: str) -> dict[str, Average]:
    """The averages of a paper such as "spice", by name, in order; empty if it reports none."""
    entries = _entries(paper)
    return {name: Average.model_validate(entry) for name, entry in entries.items() if name != NOTES}


def notes_on(paper: str) -> tuple[str, ...]:
    """How our evaluation differs from a paper's, apart from the protocols of single benchmarks."""
    return tuple(_entries(paper).get(NOTES, ()))


def _entries(paper: str) -> dict[str, Any]:
    path = FOLDER / "papers" / f"{paper}.toml"
    if not path.is_file():
        return {}
    return tomllib.loads(path.read_text(encoding="utf-8"))
