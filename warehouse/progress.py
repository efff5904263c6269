"""How far a run has got, for a screen that follows it.

It is read from the run's tables, locks and settings.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from warehouse.address import EVALUATION, Address
from warehouse.catalogue import Catalogue
from warehouse.schemas import EVALUATIONS, Evaluation
from warehouse.table import Table

MONITOR = " monitor"  # the name of a monitor, which is no benchmark, ends in this


@dataclass(frozen=True)
class Progress:
    """Where a run is. Unknown values are None; times are in s.

    `rows` counts the rows so far of the table being built, `rows_before` those of the last table of
    the same name; `rate` is in rows/s. `left_s` is known once an iteration is complete: the mean
    time of the complete ones, times the number that remain.
    """

    num_tables: int
    iteration: int | None = None
    iterations: int | None = None
    phase: str | None = None
    step: int | None = None
    steps: int | None = None
    table: str | None = None
    rows: int = 0
    rows_before: int | None = None
    rate: float | None = None
    left_s: float | None = None
    benchmark: str | None = None
    score: float | None = None

    @property
    def place(self) -> str:
        """Where the run is, in words: iteration 2 of 3, solver, step 4 of 8."""
        parts = []
        if self.iteration is not None:
            parts.append(f"iteration {self.iteration}{_of(self.iterations)}")
        if self.phase:
            parts.append(self.phase)
        if self.step is not None:
            parts.append(f"step {self.step}{_of(self.steps)}")
        return ", ".join(parts) or "preparation"


def _of(number: int | None) -> str:
    return "" if number is None else f" of {number}"


def progress(catalogue: Catalogue, run: str) -> Progress:
    """The progress of a run; a run that does not exist has no tables.

    Cheap enough to ask every second: only new recipes are read.
    """
    store = catalogue.store
    settings = store.kept(run, "config.json") or {}
    tables = sorted(catalogue.tables(run), key=lambda table: table.recipe.get("started_at", 0.0))
    work = next(iter(store.working(run)), None)
    at = None
    if work is not None:
        at = Address.parse(work["address"])
    elif tables:
        at = tables[-1].at
    if at is None:
        return Progress(num_tables=0)
    benchmark, score = _last_score(tables)
    rows = 0
    rate = None
    table = None
    if work is not None:
        table = f"{at.table}.{at.label}" if at.label else at.table
        rows = store.rows_so_far(work["address"])
        elapsed = time.time() - work["since"]
        rate = rows / elapsed if rows and elapsed > 0 else None
    alike = [one for one in tables if _kind(one.at) == _kind(at) and str(one.at) != str(at)]
    return Progress(
        num_tables=len(tables),
        iteration=at.iteration,
        iterations=_number(settings.get("iterations")),
        phase=at.phase,
        step=at.step,
        steps=_steps(settings, at.phase),
        table=table,
        rows=rows,
        rows_before=alike[-1].num_rows if alike else None,
        rate=rate,
        left_s=_left_s(tables, at.iteration, _number(settings.get("iterations"))),
        benchmark=benchmark,
        score=score,
    )


def _kind(at: Address) -> tuple[str | None, str | None, str | None]:
    return at.phase, at.table, at.label


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _steps(settings: dict[str, Any], phase: str | None) -> int | None:
    """The steps of a phase: the setting `<phase>.steps`, else `steps`."""
    of_phase = settings.get(phase or "")
    if isinstance(of_phase, dict) and _number(of_phase.get("steps")) is not None:
        return _number(of_phase["steps"])
    return _number(settings.get("steps")) if phase else None


def _last_score(tables: list[Table]) -> tuple[str | None, float | None]:
    """The last held-out score, and on which benchmark."""
    for table in reversed(tables):
        if table.schema is not EVALUATIONS or table.at.phase not in (EVALUATION, None):
            continue
        if not table.has_rows:
            continue
        for row in table.rows(Evaluation):
            if row["metric"] == "score" and not row["benchmark"].endswith(MONITOR):
                return row["benchmark"], row["score"]
    return None, None


def _left_s(tables: list[Table], iteration: int | None, iterations: int | None) -> float | None:
    """The estimated time of the remaining iterations, by the mean of the complete ones."""
    if iteration is None or iterations is None:
        return None
    spent: dict[int, float] = {}
    for table in tables:
        number = table.at.iteration
        if number:
            spent[number] = spent.get(number, 0.0) + table.recipe.get("seconds", 0.0)
    complete = [seconds for number, seconds in spent.items() if number < iteration]
    if not complete:
        return None
    mean = sum(complete) / len(complete)
    return max(0.0, mean * (iterations - iteration + 1) - spent.get(iteration, 0.0))
