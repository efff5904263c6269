"""Compare runs: their differing settings, their held-out scores, and the cost of these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.benchmarks.item_scores import differences
from tasks.reports.costs import COSTS, costs
from warehouse.address import no_run
from warehouse.fork import FORK
from warehouse.provenance import (
    DryRun,
    by_reason,
    code_version,
    recipe_differences,
    stage_of,
    stale,
    within,
)
from warehouse.query import query
from warehouse.schemas import TASKS, Row
from warehouse.status import stage_seconds
from warehouse.store import Store
from warehouse.table import Table

MOST_FUNCTIONS = 3  # number of functions that are named
SCORES = """
    select benchmark, iteration, run, score, standard_error, protocol from evaluations
    where metric = 'score' and list_contains($runs, run) order by benchmark, iteration, run
"""


def made_differently(store: Store, runs: Sequence[str]) -> list[Row]:
    """One row per part in which the recipes of the runs' tables differ, by stage.

    A part is a setting, a prompt, an SQL file, or all the code of a stage. Each table is compared
    with the first run's table at the same place; the column `tables` counts how many differ in the
    part.
    """
    first, *others = runs
    of_first = _by_place(store, first)
    rows: dict[tuple[str, ...], Row] = {}
    for run in others:
        of_run = _by_place(store, run)
        for place in of_first.keys() & of_run.keys():
            table = of_first[place]
            for part in _differences(table, of_run[place]):
                key = (stage_of(table), part["what"], part["name"])
                row = rows.setdefault(
                    (*key, str(part["one"])),
                    {"stage": key[0], "what": key[1], "name": key[2]}
                    | {first: part["one"]}
                    | dict.fromkeys(others, "")
                    | {"tables": 0},
                )
                values = [value for value in str(row[run]).split(", ") if value]
                if str(part["other"]) not in values:
                    row[run] = ", ".join([*values, str(part["other"])])
                row["tables"] += 1
    return sorted(rows.values(), key=lambda row: (row["what"] == "code", row["stage"]))


def _differences(one: Table, other: Table) -> list[Row]:
    """The parts in which two recipes differ; all functions are one part, which names some of
    them."""
    parts = recipe_differences(one, other)
    functions = [part["name"] for part in parts if part["what"] == "code"]
    differences = [part for part in parts if part["what"] != "code"]
    if functions:
        names = ", ".join(functions[:MOST_FUNCTIONS])
        if len(functions) > MOST_FUNCTIONS:
            names += f" and {len(functions) - MOST_FUNCTIONS} more"
        versions = {"one": code_version(one.recipe), "other": code_version(other.recipe)}
        differences.append({"what": "code", "name": names, **versions})
    return differences


def stale_tables(store: Store, checked: Mapping[str, DryRun]) -> list[Row]:
    """One row per run and reason why some of its tables are stale or were not checked."""
    rows: list[Row] = []
    for run, dry_run in checked.items():
        stale_of_run = stale(store, list(store.tables(run)), dry_run.stale)
        rows += [{"run": run, **row} for row in by_reason(stale_of_run)]
        if dry_run.problem:
            unchecked = {
                "stale because": f"not checked: {dry_run.problem}",
                "tables": "",
                "first": "",
            }
            rows.append({"run": run, **unchecked})
    return rows


def _by_place(store: Store, run: str) -> dict[str, Table]:
    return {within(table.address): table for table in store.tables(run)}


def differing_settings(store: Store, runs: Sequence[str]) -> list[Row]:
    """One row per setting that differs between the runs.

    Raises ValueError for a run that does not exist.
    """
    settings = {run: flat(_config(store, run)) for run in runs}
    keys = sorted({key for of_run in settings.values() for key in of_run})
    rows = [
        {"setting": key, **{run: of_run.get(key) for run, of_run in settings.items()}}
        for key in keys
    ]
    return [row for row in rows if any(row[run] != row[runs[0]] for run in runs)]


def scores(store: Store, runs: Sequence[str]) -> list[Row]:
    """One row per benchmark and iteration: the score of every run with its standard error.

    Includes only benchmarks whose protocol was the same in all runs.
    """
    by_place: dict[tuple[str, int], Row] = {}
    apart = incomparable(store, runs)
    for row in query(store.root, SCORES, {"runs": list(runs)}):
        if row["benchmark"] in apart:
            continue
        benchmark = row["benchmark"]
        iteration = row["iteration"]
        line = by_place.setdefault(
            (benchmark, iteration),
            {"benchmark": benchmark, "iteration": iteration} | dict.fromkeys(runs, "–"),
        )
        line[row["run"]] = f"{row['score']:.3f}"
        if row["standard_error"] is not None:
            line[row["run"]] += f" ± {row['standard_error']:.3f}"
    return list(by_place.values())


def spent(store: Store, runs: Sequence[str]) -> list[Row]:
    """One row per run: the total cost of its updates, and the seconds of all its stages.

    The latter include measurements: they are the `stage_s` of `selfplay status`.
    """
    return [
        {
            "run": run,
            **_readable(list(costs(store, run).values())[-1]),
            "seconds of all stages": f"{stage_seconds(store.tables(run)):,.0f}",
        }
        for run in runs
    ]


def _readable(cost: Row) -> Row:
    return {label: f"{cost[name]:,.0f}" for name, label in COSTS.items()}


def incomparable(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Benchmarks whose protocol differs between the runs, and how it differs.

    A protocol consists of revision, items, prompt, judge and sampling. For a benchmark without a
    protocol, such as a built-in world's, the tasks must be the same.
    """
    by_benchmark: dict[str, str] = {}
    first: dict[str, tuple[str, Row]] = {}
    own_tasks = {run: _held_out_tasks(store, run) for run in runs}
    for row in query(store.root, SCORES, {"runs": list(runs)}):
        run = row["run"]
        benchmark = row["benchmark"]
        protocol = json.loads(row["protocol"] or "{}")
        first_run, first_protocol = first.setdefault(benchmark, (run, protocol))
        differing = differences(first_protocol, protocol)
        if differing:
            by_benchmark[benchmark] = f"in {run}, {'; '.join(differing)}"
        elif not protocol and own_tasks[run] != own_tasks[first_run]:
            by_benchmark[benchmark] = _other_tasks(run, first_run, own_tasks)
    return by_benchmark


def _other_tasks(run: str, first_run: str, own_tasks: dict[str, dict[str, int]]) -> str:
    """
    >>> _other_tasks("b", "a", {"a": {"x": 480}, "b": {"y": 96}})
    'the held-out tasks differ: b has 96, a has 480'
    """
    num = sum(own_tasks[run].values())
    num_first = sum(own_tasks[first_run].values())
    if num == num_first:
        return f"the {num} held-out tasks of {run} are others than those of {first_run}"
    return f"the held-out tasks differ: {run} has {num}, {first_run} has {num_first}"


def _held_out_tasks(store: Store, run: str) -> dict[str, int]:
    """A run's own held-out tasks: how many each table has, by the table's content hash."""
    return {
        table.content_hash: table.num_rows
        for table in store.tables(run)
        if table.schema is TASKS and (table.at.iteration, table.at.phase) == (0, "benchmark")
    }


def _config(store: Store, run: str) -> Row:
    """A run's configuration; for a fork that has not been continued yet, the original run's."""
    config = store.kept(run, "config.json")
    if config is not None:
        return config
    origin = store.kept(run, FORK)
    if origin is None:
        raise no_run(run)
    return _config(store, origin["run"])


def flat(settings: Any, where: str = "") -> Row:
    """Settings by their dotted names, which begin with `where`; an empty group has no settings.

    >>> flat({"solver": {"steps": 4}, "models": {}})
    {'solver.steps': 4}
    """
    if not isinstance(settings, dict):
        return {where: settings}
    return {
        k: v
        for key, value in settings.items()
        for k, v in flat(value, f"{where}.{key}".lstrip(".")).items()
    }
