"""What a run has built, what it is building, and how long each stage took.

All of this is read from recipes and locks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from warehouse.query import EMPTY
from warehouse.schemas import Row
from warehouse.stopped import stopped
from warehouse.store import Store, Table


def runs(store: Store) -> list[Row]:
    """One row per run: numbers of iterations, tables and rows, total stage time and wall time in s.

    If any run stopped with an error, rows also have the kind of that error.
    """
    tables_of: dict[str, list[Table]] = {}
    for table in store.tables():
        if not table.holds_labels:
            tables_of.setdefault(table.at.run, []).append(table)
    rows = [_run_row(name, tables) for name, tables in tables_of.items() if name != EMPTY]
    causes = {row["run"]: stopped(store, row["run"]) for row in rows}
    if any(causes.values()):
        for row in rows:
            cause = causes[row["run"]]
            row["stopped_by"] = cause.kind if cause else ""
    return rows


def _run_row(name: str, tables: list[Table]) -> dict[str, Any]:
    starts = [t.recipe["started_at"] for t in tables]
    ends = [t.recipe["started_at"] + t.recipe["seconds"] for t in tables]
    iterations = {t.at.iteration for t in tables} - {None, 0}
    return {
        "run": name,
        "iterations": len(iterations),
        "tables": len(tables),
        "rows": sum(t.num_rows for t in tables),
        "stage_s": round(stage_seconds(tables), 1),
        "wall_s": round(max(ends) - min(starts), 1),
        "last": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(max(ends))),
    }


def stage_seconds(tables: Iterable[Table]) -> float:
    """The total time of the stages that made some tables, in s.

    Stages that ran in parallel count in full, and the time between stages does not count.
    """
    return sum(table.recipe["seconds"] for table in tables)


@dataclass(frozen=True)
class Parts:
    """A summary of a run: one row per iteration, and one per phase of the last iteration.

    A row has the numbers of steps (phases only), tables, rows and sampled tokens, and the seconds
    of its stages. What lies outside any iteration has the iteration None.
    """

    iterations: list[Row]
    last: int | None
    phases: list[Row]


def parts(store: Store, run: str) -> Parts:
    """Summarise what a run has built: its iterations, and the phases of the last one.

    Tables outside any iteration count under None.
    """
    tables = sorted(store.tables(run), key=lambda table: table.recipe["started_at"])
    by_iteration: dict[int | None, list[Table]] = {}
    for table in tables:
        by_iteration.setdefault(table.at.iteration, []).append(table)
    last = max((number for number in by_iteration if number is not None), default=None)
    by_phase: dict[str, list[Table]] = {}
    for table in by_iteration.get(last, []) if last is not None else []:
        by_phase.setdefault(table.at.phase or "", []).append(table)
    order = sorted(by_iteration, key=lambda number: -1 if number is None else number)
    return Parts(
        iterations=[{"iteration": n, **_counts(by_iteration[n])} for n in order],
        last=last,
        phases=[
            {"phase": phase, "steps": _num_steps(some), **_counts(some)}
            for phase, some in by_phase.items()
        ],
    )


def _num_steps(tables: list[Table]) -> int:
    return len({table.at.step for table in tables} - {None})


def _counts(tables: list[Table]) -> Row:
    return {
        "tables": len(tables),
        "rows": sum(table.num_rows for table in tables),
        "tokens": sum(table.recipe.get("tokens") or 0 for table in tables),
        "stage_s": round(stage_seconds(tables), 1),
    }


def stages(store: Store, run: str) -> list[Row]:
    """One row per published table of a run, in the order in which they were built.

    Columns: address, stage, rows, tokens, seconds, gpu_s, peak_mb, and not_used, the number of rows
    that are not used.
    """
    made = [table for table in store.tables(run) if not table.holds_labels]
    tables = sorted(made, key=lambda t: t.recipe["started_at"])
    return [
        {
            "address": t.address,
            "stage": t.recipe["stage"].rsplit(".", 1)[-1],
            "rows": t.num_rows,
            "tokens": t.recipe.get("tokens"),
            "seconds": t.recipe["seconds"],
            "gpu_s": t.recipe.get("gpu_s"),
            "peak_mb": t.recipe.get("peak_memory_mb"),
            "not_used": sum(t.recipe["counts"].values()),
        }
        for t in tables
    ]


def working(store: Store, run: str | None = None) -> list[Row]:
    """One row per table that is being built right now, in one run or in all.

    Columns: address, pid, host, and the seconds since it began.
    """
    return [
        {
            "address": w["address"],
            "pid": w["pid"],
            "host": w["host"],
            "seconds": round(time.time() - w["since"], 1),
        }
        for w in store.working(run)
    ]
