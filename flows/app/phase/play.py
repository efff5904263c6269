"""Play the grid, and report the finished runs after each run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from flows.app import claims
from flows.app.kept_runs import KeptRuns, add, keep
from flows.app.phase.figure import draw_diagram
from flows.app.phase.grid import Cell, Grid
from flows.app.phase.kept_findings import Found, add_findings, findings_file, keep_findings
from flows.app.phase.results import Results
from flows.runtime.machines import MachinePool
from flows.runtime.store_root import open_store, store_root
from warehouse.query import snapshot
from warehouse.schemas import Row

NAME = "phase"
Finished = dict[str, tuple[Cell, claims.End]]
NOTE = (
    "Written by `selfplay study phase` after every run. Scores are of one sampled answer to each of"
    " 2,000 held-out questions. *share* is that of the answers or tasks whose verdicts follow the"
    " shape of error (`tasks/noise.py`); some of these verdicts are right all the same, so that"
    " *verdict error*, the share of all verdicts that were not the truth, may be lower. A run has"
    " collapsed once its score is two standard errors below that of its base model. It has failed"
    " if it collapsed, or gained less than half of what the clean runs gain on average; else it is"
    " healthy.\n"
)
MONITORS_NOTE = (
    "What the monitors would have done: their limit in the profile, and the strictest limit that"
    " raises an alarm in at most one of twenty healthy runs. A delay is the iteration of the alarm"
    " minus that of the collapse: below 0 it came before.\n"
)
FINDINGS_NOTE = (
    "The findings of `selfplay findings` after each iteration: in how many runs a rule fired at"
    " all, by the share of answers or tasks that the shape of error is applied to, and what it"
    " warned of.\n"
)
TESTS_NOTE = (
    "Limits and findings were decided from earlier runs. This is what they did in the runs that"
    " began afterwards ({time}): the test of both.\n"
)


@dataclass(frozen=True)
class PlannedRun:
    """A run of the grid."""

    cell: Cell
    seed: int

    @property
    def name(self) -> str:
        return self.cell.run_name(self.seed)


def planned(grid: Grid, part: claims.Part = claims.WHOLE) -> Iterator[PlannedRun]:
    """Yield the runs of a grid, or of a part of it: all cells with the first seed, then the next.

    For each seed, cells without errors come first, then those with the most errors, which tell the
    most about what fails.
    """
    cells = sorted(grid.cells(), key=lambda cell: (cell.share > 0, -cell.share))
    runs = (PlannedRun(cell, seed) for seed in range(grid.seeds) for cell in cells)
    for position, run in enumerate(runs):
        if claims.is_in_part(position, part):
            yield run


def play_grid(
    grid: Grid, part: claims.Part = claims.WHOLE, again: bool = False, gpu: bool = False
) -> None:
    """Play the unfinished runs of a part, and report after each.

    `part` is as in `planned`. `again`: also play runs that were kept. `gpu`: play on a GPU.
    """
    runs = finished(grid)
    with claims.one_at_a_time():
        report(grid, runs)
    with closing(MachinePool()) as pool:
        for run in planned(grid, part):
            if again or run.name not in runs:
                asked = grid.request(run.cell, run.seed)
                claims.play(claims.on_gpu(asked) if gpu else asked, pool)
                runs.pop(run.name, None)  # the store now holds it, even if only the kept file did
                runs = finished(grid, runs)
                with claims.one_at_a_time():
                    report(grid, runs)


def add_runs(grid: Grid, files: Iterable[Path]) -> None:
    """Add the kept runs of other machines, and their findings, to those of the grid, and report all
    finished runs.

    Raises FileNotFoundError and ValueError as `kept_runs.add` does.
    """
    with claims.one_at_a_time():
        path = claims.kept_file(NAME)
        for file in files:
            print(f"{file}: {len(add(path, file))} new runs", flush=True)
            add_findings(findings_file(path), findings_file(file), KeptRuns.load(path))
        report(grid, finished(grid))


def progress(grid: Grid) -> list[Row]:
    """One row per run of the grid: what it would play next, or how long it took."""
    kept = KeptRuns.load(claims.kept_file(NAME))
    rows = []
    for run in planned(grid):
        asked = grid.request(run.cell, run.seed)
        stage, alarm = claims.next_stage(asked)
        seconds = claims.seconds(run.name)
        kept_run = kept.get(asked)
        if stage is not None and kept_run is not None:
            stage = None
            alarm = kept_run.stopped
            seconds = kept_run.seconds
        rows.append(
            {
                "run": run.name,
                "next": stage or "finished",
                "stopped": alarm,
                "seconds": round(seconds),
            }
        )
    return rows


def finished(grid: Grid, known: Finished | None = None) -> Finished:
    """The finished runs by name: their cell, and how they ended.

    Runs in `known` are not checked again.
    """
    kept = KeptRuns.load(claims.kept_file(NAME))
    runs = dict(known or {})
    for run in planned(grid):
        if run.name in runs:
            continue
        asked = grid.request(run.cell, run.seed)
        stage, alarm = claims.next_stage(asked)
        if stage is None:
            runs[run.name] = (run.cell, claims.End(alarm))
        elif kept_run := kept.get(asked):
            runs[run.name] = (run.cell, claims.End(kept_run.stopped, in_store=False))
    return runs


def keep_finished(grid: Grid, runs: Finished) -> tuple[KeptRuns, list[Found]]:
    """Keep the finished runs that the store holds, with their findings; return all kept runs and
    findings."""
    ends = {name: end for name, (_, end) in runs.items() if end.in_store}
    finished_here = [
        (grid.request(run.cell, run.seed), ends[run.name].alarm)
        for run in planned(grid)
        if run.name in ends
    ]
    path = claims.kept_file(NAME)
    store = open_store()
    keep(path, store, finished_here, {})
    kept = KeptRuns.load(path)
    return kept, keep_findings(findings_file(path), store, kept, ends)


def report(grid: Grid, runs: Finished) -> None:
    """Write the tables and the diagram of the finished runs to `data/bench`."""
    began = time.monotonic()
    if not runs:
        return
    kept, found = keep_finished(grid, runs)
    with snapshot(store_root(), [], runs, {"evaluations": kept.evaluations(runs)}) as ask:
        results = Results(
            grid,
            {name: cell for name, (cell, _) in runs.items()},
            frozenset(name for name, (_, end) in runs.items() if end.alarm),
            ask,
            [line for line in found if line["run"] in runs],
            later=frozenset(
                name
                for name in runs
                if name in kept.runs and kept.runs[name].began > grid.limits_set.timestamp()
            ),
        )
        cells = results.cells()
        monitors = results.monitors()
        findings = results.findings()
        tests = results.tests()
    claims.BENCH.mkdir(parents=True, exist_ok=True)
    text = f"{NOTE}\n{claims.as_markdown(rounded(cells))}"
    if monitors:
        text += f"\n{MONITORS_NOTE}\n{claims.as_markdown(rounded(monitors))}"
    if findings:
        text += f"\n{FINDINGS_NOTE}\n{claims.as_markdown(rounded(findings))}"
    if tests:
        note = TESTS_NOTE.format(time=f"{grid.limits_set:%Y-%m-%d %H:%M} UTC")
        text += f"\n{note}\n{claims.as_markdown(rounded(tests))}"
    (claims.BENCH / f"{NAME}.md").write_text(text, encoding="utf-8")
    rows = [*cells, *monitors, *findings, *tests]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (claims.BENCH / f"{NAME}.jsonl").write_text("".join(lines), encoding="utf-8")
    draw_diagram(cells, claims.BENCH / f"{NAME}.png")
    print(f"{len(runs)} runs reported in {time.monotonic() - began:.1f} s", flush=True)


def rounded(rows: list[Row]) -> list[Row]:
    """The rows, with numbers rounded to three decimals and a dash for unknown values."""
    return [{column: _rounded(value) for column, value in row.items()} for row in rows]


def _rounded(value: object) -> object:
    if value is None:
        return "–"
    if isinstance(value, float):
        return round(value, 3)
    return value
