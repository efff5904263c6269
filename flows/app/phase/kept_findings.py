"""The findings of the grid's runs, kept without their stores.

Findings need all tables of a run, but kept runs have only their `evaluations`. So findings are
computed while the store holds the run, once per iteration, as a user would have seen them then.
`data/bench/phase-findings.jsonl` has a line for each run and iteration:

    select run, iteration, unnest(rules) as rule from 'data/bench/phase-findings.jsonl'
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from flows.app.kept_runs import KeptRuns
from tasks.findings.find import findings
from warehouse.lake import Lake
from warehouse.store import Store

SUFFIX = "-findings.jsonl"


class Found(TypedDict):
    """The names of the rules that found something in a run after an iteration, most severe first.

    `began`: when the run began, in seconds since 1970; a run played again counts as a new run.
    """

    run: str
    began: float
    iteration: int
    rules: list[str]


def findings_file(kept_file: Path) -> Path:
    """The file of findings that belongs to a file of kept runs, in the same folder.

    >>> findings_file(Path("bench/phase-runs.parquet")).name
    'phase-findings.jsonl'
    """
    return kept_file.with_name(kept_file.name.removesuffix("-runs.parquet") + SUFFIX)


def load(path: Path) -> list[Found]:
    """The lines of a file; none if it does not exist. Raises ValueError if it is damaged."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as problem:
        raise ValueError(
            f"{path} does not hold findings ({problem}); restore it, or delete it to compute them"
            " again"
        ) from None


def keep_findings(path: Path, store: Store, kept: KeptRuns, in_store: Iterable[str]) -> list[Found]:
    """Add the findings of kept runs that the store holds to the file at `path`; return all lines.

    Lines of runs that are no longer kept are removed.
    """
    lines = [line for line in load(path) if _is_of(kept, line)]
    known = {line["run"] for line in lines}
    for run in in_store:
        if run not in known:
            lines += find_by_iteration(store, run, kept.runs[run].began)
    _write(path, lines)
    return lines


def add_findings(path: Path, other: Path, kept: KeptRuns) -> None:
    """Add the lines of another machine's file, for runs that are kept now."""
    lines = [line for line in load(path) if _is_of(kept, line)]
    known = {line["run"] for line in lines}
    lines += [line for line in load(other) if _is_of(kept, line) and line["run"] not in known]
    _write(path, lines)


def find_by_iteration(store: Store, run: str, began: float) -> Iterator[Found]:
    """Yield the findings of a run after each iteration, by the shipped rules."""
    lake = Lake(store)
    iterations = {table.at.iteration for table in store.tables(run)}
    for iteration in sorted(number for number in iterations if number):
        rules = [finding.rule for finding in findings(lake, run, iteration=iteration)]
        yield Found(run=run, began=began, iteration=iteration, rules=rules)


def _is_of(kept: KeptRuns, line: Found) -> bool:
    run = kept.runs.get(line["run"])
    return run is not None and run.began == line["began"]


def _write(path: Path, lines: Sequence[Found]) -> None:
    ordered = sorted(lines, key=lambda line: (line["run"], line["iteration"]))
    fresh = path.with_name(f"{path.name}.tmp")
    fresh.write_text("".join(json.dumps(line) + "\n" for line in ordered), encoding="utf-8")
    os.replace(fresh, path)
