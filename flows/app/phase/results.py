"""The results of the grid's runs: tables of cells, monitors and findings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from flows.app.evidence import mean_interval
from flows.app.phase.grid import CLEAN, OWN, Cell, Grid
from flows.app.phase.kept_findings import Found
from flows.app.study import HELD_OUT
from tasks.monitors.drift import held_out_course
from tasks.monitors.monitor import is_beyond, is_of
from warehouse.query import Ask
from warehouse.schemas import Row

SQL = Path(__file__).with_name("sql")


def statement(name: str) -> str:
    """The text of a query of this package, `sql/NAME.sql`."""
    return (SQL / f"{name}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Results:
    """The results of all finished runs.

    `runs` maps the names of finished runs to their cells. `stopped` are those that stopped by
    themselves before their last iteration, which counts as a collapse. `found` holds the findings
    of the runs whose findings are known. `later` are the runs that began after the limits were set.
    """

    grid: Grid
    runs: Mapping[str, Cell]
    stopped: frozenset[str]
    ask: Ask
    found: Sequence[Found] = ()
    later: frozenset[str] = frozenset()

    @cached_property
    def of_run(self) -> dict[str, Row]:
        """How each run ended: a row of `sql/runs.sql`. A run that stopped counts as collapsed."""
        benchmark, metric = HELD_OUT
        rows = self.ask(
            statement("runs"),
            {
                "runs": list(self.runs),
                "benchmark": benchmark,
                "metric": metric,
                "collapse_errors": self.grid.collapse_errors,
            },
        )
        ends = {}
        for row in rows:
            if row["run"] in self.stopped and row["collapsed_at"] is None:
                row = {**row, "collapsed_at": row["iterations"] + 1}
            ends[row["run"]] = row
        return ends

    @cached_property
    def healthy(self) -> frozenset[str]:
        """The runs that did not collapse and whose gain is at least `healthy_gain` times the mean
        gain of their method's clean runs."""
        clean_gains: dict[str, list[float]] = {method: [] for method in self.grid.methods}
        for name, row in self.of_run.items():
            if self.runs[name].shape == CLEAN:
                clean_gains[self.runs[name].method].append(row["gain"])
        needed = {
            method: self.grid.healthy_gain * (_mean(gains) or 0.0)
            for method, gains in clean_gains.items()
        }
        return frozenset(
            name
            for name, row in self.of_run.items()
            if row["collapsed_at"] is None and row["gain"] >= needed[self.runs[name].method]
        )

    def cells(self) -> list[Row]:
        """One row per cell with a finished run, in the order of the grid."""
        rows = []
        for cell in self.grid.cells():
            names = [name for name, of in self.runs.items() if of == cell and name in self.of_run]
            if not names:
                continue
            ended = [self.of_run[name] for name in names]
            collapsed = [row["collapsed_at"] for row in ended if row["collapsed_at"] is not None]
            rows.append(
                {
                    "method": cell.method,
                    "errors": cell.shape,
                    "share": cell.share,
                    "verdict error": _mean(row["verdict_error"] for row in ended),
                    "wrong answers that pass": _mean(row["wrong_passes"] for row in ended),
                    "seeds": len(ended),
                    "before": fmean(row["before"] for row in ended),
                    "last": fmean(row["last"] for row in ended),
                    "gain [95%]": str(mean_interval([row["gain"] for row in ended])),
                    "failed": sum(name not in self.healthy for name in names),
                    "collapsed": len(collapsed),
                    "in iteration": median(collapsed) if collapsed else None,
                }
            )
        return rows

    def monitors(self) -> list[Row]:
        """One row per method and limit: the limit in the method's profile, and the strictest limit
        that raises an alarm in at most a share `false_alarms` of the healthy runs, each with its
        warnings.
        """
        rows = []
        for method in self.grid.methods:
            of_method = self._of_method(method)
            for name, limit in self.grid.limits(method):
                of_limit = self._measured(name, of_method)
                if of_limit:
                    rows.append(self._monitor(method, name, limit, of_limit, of_method))
        return rows

    def tests(self) -> list[Row]:
        """One row per limit in a method's profile and one per finding: its warnings in the runs
        that began after the limits were set."""
        rows = []
        for method in self.grid.methods:
            later = self._of_method(method) & self.later
            for name, limit in self.grid.limits(method):
                of_limit = self._measured(name, later)
                if limit is None or not of_limit:
                    continue
                alarms = {run: first_alarm(name, of_limit, run, limit) for run in later}
                test = {"method": method, "tested": f"{name} {limit:g}"}
                rows.append(test | self._warnings(alarms))
            rows += [
                {"method": method, "tested": rule} | self._warnings(warned_in)
                for rule, warned_in in self._warned_in(later).items()
            ]
        return rows

    def _of_method(self, method: str) -> set[str]:
        return {name for name, cell in self.runs.items() if cell.method == method}

    def _measured(self, limit: str, runs: set[str]) -> list[Row]:
        """The measurements, in the given runs, of the metric that a limit applies to."""
        return [row for row in self._metrics if row["run"] in runs and is_of(row["metric"], limit)]

    @cached_property
    def _metrics(self) -> list[Row]:
        return [*self.ask(statement("monitors"), {"runs": list(self.runs)}), *self._falls()]

    def _falls(self) -> Iterator[Row]:
        """Yield the number of falls up to each iteration from 1 on, in rows like those of
        `sql/monitors.sql`. Runs of earlier versions counted falls differently."""
        benchmark, _ = HELD_OUT
        for run, row in self.of_run.items():
            scores = row["scores"]
            for iteration in range(1, len(scores) - 1):
                until_then = {benchmark: scores[: iteration + 1]}
                for name, value in held_out_course(held_out=until_then, passes={}):
                    yield {
                        "run": run,
                        "iteration": iteration,
                        "metric": name,
                        "highest": value,
                        "lowest": value,
                    }

    def _monitor(
        self,
        method: str,
        name: str,
        limit: float | None,
        measured: Sequence[Row],
        of_method: set[str],
    ) -> Row:
        healthy = sorted(of_method & self.healthy)
        proposed = propose(name, [worst(name, measured, run) for run in healthy], self.grid)
        row = {"method": method, "limit": name}
        for column, value in (("now", limit), ("proposed", proposed)):
            alarms = {run: first_alarm(name, measured, run, value) for run in of_method}
            warnings = self._warnings(alarms)
            row |= {column: value, **{f"{column}: {key}": told for key, told in warnings.items()}}
        return row

    def findings(self) -> list[Row]:
        """One row per method and finding: the number of runs in which it appeared, by the share of
        answers or tasks that an error is applied to, and its warnings."""
        rows = []
        for method in self.grid.methods:
            for rule, warned_in in self._warned_in(self._of_method(method)).items():
                rows.append(self._finding(method, rule, warned_in))
        return rows

    def _warned_in(self, runs: set[str]) -> dict[str, dict[str, int | None]]:
        """For every finding of the given runs, the iteration in which it first appeared in each run
        whose findings are known; None if it never did."""
        lines = [line for line in self.found if line["run"] in runs]
        known = {line["run"] for line in lines}
        rules = sorted({rule for line in lines for rule in line["rules"]})
        warned_in: dict[str, dict[str, int | None]] = {rule: dict.fromkeys(known) for rule in rules}
        for line in sorted(lines, key=lambda line: line["iteration"], reverse=True):
            for rule in line["rules"]:
                warned_in[rule][line["run"]] = line["iteration"]
        return warned_in

    def _finding(self, method: str, rule: str, warned_in: Mapping[str, int | None]) -> Row:
        groups: dict[str, list[str]] = {"clean": [], "own verdicts": []}
        groups |= {f"share {share:.0%}": [] for share in self.grid.shares}
        for run in warned_in:
            groups[_group(self.runs[run])].append(run)
        return {
            "method": method,
            "finding": rule,
            **{name: _count(warned_in, runs) for name, runs in groups.items()},
            **self._warnings(warned_in),
        }

    def _warnings(self, warned_in: Mapping[str, int | None]) -> Row:
        """How often something warned, given the iteration of its first warning in each run.

        A warning in a healthy run is a false alarm; all other runs failed. A delay is the iteration
        of the warning minus that of the collapse: below 0, the warning came first.
        """
        ended = {run: warned_in[run] for run in sorted(warned_in) if run in self.of_run}
        delays = [
            warning - collapse
            for run, warning in ended.items()
            if warning is not None and (collapse := self.of_run[run]["collapsed_at"]) is not None
        ]
        return {
            "false alarms": _count(warned_in, [run for run in ended if run in self.healthy]),
            "failures warned of": _count(
                warned_in, [run for run in ended if run not in self.healthy]
            ),
            "delay": median(delays) if delays else None,
        }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return fmean(known)


def _count(warned_at: Mapping[str, int | None], runs: Sequence[str]) -> str:
    """How many of the runs had a warning, as text."""
    return f"{sum(warned_at[run] is not None for run in runs)} of {len(runs)}"


def _group(cell: Cell) -> str:
    """The column of a cell in the table of findings.

    >>> _group(Cell("spice", "task", 0.4)), _group(Cell("spice", OWN, 0.0))
    ('share 40%', 'own verdicts')
    """
    if cell.shape == CLEAN:
        return "clean"
    if cell.shape == OWN:
        return "own verdicts"
    return f"share {cell.share:.0%}"


def first_alarm(name: str, measured: Iterable[Row], run: str, limit: float | None) -> int | None:
    """The first iteration in which a run's metric is beyond a limit; None if it never is."""
    if limit is None:
        return None
    beyond = (
        row["iteration"]
        for row in measured
        if row["run"] == run
        and (is_beyond(name, row["highest"], limit) or is_beyond(name, row["lowest"], limit))
    )
    return min(beyond, default=None)


def worst(name: str, measured: Iterable[Row], run: str) -> float:
    """A run's value that comes closest to an alarm or goes furthest beyond it; NaN if none was
    measured.

    >>> rows = [{"run": "r", "highest": 0.2, "lowest": -0.3}]
    >>> worst("max_gap", rows, "r"), worst("min_kept", rows, "r")
    (0.3, -0.3)
    """
    rows = [row for row in measured if row["run"] == run]
    if not rows:
        return math.nan
    if name.startswith("max_"):
        return max(max(abs(row["highest"]), abs(row["lowest"])) for row in rows)
    return min(row["lowest"] for row in rows)


def propose(name: str, worst_of_healthy: Sequence[float], grid: Grid) -> float | None:
    """The strictest limit whose share of false alarms is at most that of the grid.

    None without healthy runs. With 30 healthy runs and a share of 0.05, one of them may raise an
    alarm.
    """
    values = sorted(value for value in worst_of_healthy if not math.isnan(value))
    if not values:
        return None
    num_allowed = math.floor(grid.false_alarms * len(values))
    if name.startswith("max_"):
        return values[len(values) - 1 - num_allowed]
    return values[num_allowed]
