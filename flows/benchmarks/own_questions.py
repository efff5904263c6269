"""A file of your own questions with answers as a benchmark: no entry has to be written for it."""

from __future__ import annotations

from pathlib import Path

from flows.benchmarks import Benchmark, Protocol
from tasks.benchmarks.own_file import columns_of

RESPONSE_TOKENS = 512  # a short answer, and room for a few sentences before it


def described(path: Path) -> Benchmark:
    """The entry of a file, whose columns are told by their names (`columns_of`).

    Short answers are scored by exact match and F1, choices by their letter. Raises ValueError for a
    file without questions or without answers.
    """
    columns = columns_of(path)
    if not columns.answers:
        raise ValueError(f"{path} has no column answer, which says what is right")
    is_choice = bool(columns.options)
    return Benchmark(
        name=path.stem,
        beside=path.parent,
        title=f"your questions in {path.name}",
        file=path.name,
        origin=str(path),
        licence="your own",
        columns=columns,
        prompt="letter" if is_choice else "short",
        scorer="choice" if is_choice else "short",
        protocol={"own": Protocol(response_tokens=RESPONSE_TOKENS)},
    )
