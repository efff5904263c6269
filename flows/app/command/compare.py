"""Compare runs: the settings that differ, their held-out scores, and what these cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tasks.benchmarks.item_scores import differences
from tasks.reports.costs import COSTS, costs
from warehouse.address import no_run
from warehouse.query import query
from warehouse.schemas import TASKS, Row
from warehouse.store import Store

SCORES = """
    select benchmark, iteration, run, score, standard_error, protocol from evaluations
    where metric = 'score' and list_contains($runs, run) order by benchmark, iteration, run
"""


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

    Only of benchmarks whose protocol was the same in all runs.
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
    """One row per run: the total cost of its updates."""
    return [{"run": run, **_readable(list(costs(store, run).values())[-1])} for run in runs]


def _readable(cost: Row) -> Row:
    return {label: f"{cost[name]:,.0f}" for name, label in COSTS.items()}


def incomparable(store: Store, runs: Sequence[str]) -> dict[str, str]:
    """Benchmarks whose protocol differs between the runs, and how.

    A protocol is revision, items, prompt, judge and sampling. For a benchmark without a protocol,
    such as a built-in world's, the tasks must be the same.
    """
    by_benchmark: dict[str, str] = {}
    first: dict[str, Row] = {}
    tasks = {run: {"tasks": _held_out_tasks(store, run)} for run in runs}
    for row in query(store.root, SCORES, {"runs": list(runs)}):
        protocol = json.loads(row["protocol"]) if row["protocol"] else tasks[row["run"]]
        differing = differences(first.setdefault(row["benchmark"], protocol), protocol)
        if differing:
            by_benchmark[row["benchmark"]] = f"in {row['run']}, {'; '.join(differing)}"
    return by_benchmark


def _held_out_tasks(store: Store, run: str) -> list[str]:
    """An identity of a run's own held-out tasks."""
    tables = (
        table
        for table in store.tables(run)
        if table.schema is TASKS and (table.at.iteration, table.at.phase) == (0, "benchmark")
    )
    return sorted(table.content_hash[:12] for table in tables)


def _config(store: Store, run: str) -> Row:
    config = store.kept(run, "config.json")
    if config is None:
        raise no_run(run)
    return config


def flat(settings: Any, where: str = "") -> Row:
    """
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
