"""Runs side by side: the held-out scores of several groups of runs on one page."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pyarrow as pa

from tasks.reports.costs import COSTS, with_costs
from tasks.reports.draw import GREY, INK, PALETTE, Colours, Plot, by, draw, legend
from tasks.reports.learning import COMPLETED, SCORE_AXIS
from tasks.reports.page import Section, render, write_page
from tasks.reports.statement import shared_statement
from warehouse.query import snapshot
from warehouse.schemas import Row
from warehouse.store import Store

NAME_COLOURS = len(PALETTE)  # beyond this many lines, colours repeat and lines are dashed
COST_NOTE = (
    "The same scores against the cost of the updates so far, over all players: optimizer steps,"
    " sampled tokens, and the seconds of their stages. Held-out scores, probes and pauses are not"
    " counted."
)


def report_runs(
    store: Store,
    name: str,
    groups: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, Sequence[Row]],
    left_out: Sequence[str] = (),
    evaluations: pa.Table | None = None,
) -> Path:
    """Write `<store>/reports/<name>.html` and return its path.

    It shows the scores of every group (name -> pair -> run), with the first group as the baseline
    of the others, and `tables` (title -> rows). Runs of one pair, such as those with the same seed,
    are compared with each other; a run may be in several pairs. Benchmarks that most groups have
    come first; those in `left_out` are not drawn. `evaluations` are rows that replace those of the
    store; they may include runs of other stores, whose costs are unknown.
    """
    names = {run for runs in groups.values() for run in runs.values()}
    given = {}
    if evaluations is not None:
        given["evaluations"] = evaluations
    with snapshot(store.root, {"evaluations"} - given.keys(), names, given) as ask:
        of_run = by(ask(shared_statement("run_scores"), {"runs": sorted(names)}), "run")
    scored = [
        {**row, "group": group, "pair": pair}
        for group, runs in groups.items()
        for pair, run in runs.items()
        for row in of_run.get(run, [])
    ]
    of_benchmark = by(with_costs(store, scored), "benchmark")
    shown = [
        (name, rows)
        for name, rows in of_benchmark.items()
        if name not in left_out and is_comparable(rows)
    ]
    widest_first = sorted(shown, key=lambda pair: -len(by(pair[1], "group")))
    page = render(
        "report_runs.html.jinja",
        name=name,
        made_at=time.strftime("%Y-%m-%d %H:%M"),
        num_runs=len(names),
        sections=[
            Section(
                "Held-out scores",
                [figure for benchmark, rows in widest_first for figure in figures(benchmark, rows)],
            )
        ],
        tables={title: rows for title, rows in tables.items() if rows},
        tiles=[],
    )
    return write_page(store, f"{name}.html", page)


def is_comparable(rows: Sequence[Row]) -> bool:
    """Whether there is more to draw than one point, such as a group's score before training."""
    return len({(row["group"], row["iteration"]) for row in rows}) > 1


def figures(benchmark: str, rows: list[Row]) -> list[Plot]:
    """Scores by iteration and by cost, and how each group's last scores differ from the first
    group's."""
    of_group = by(rows, "group")
    means = {group: by_iteration(some) for group, some in of_group.items()}
    with_known_costs = by([row for row in rows if COSTS.keys() <= row.keys()], "group")
    spent = {group: by_cost(some) for group, some in with_known_costs.items()}
    apart = differences(rows, first=next(iter(means)))
    plots = [_score_figure(benchmark, means)]
    if any(point["steps"] for points in spent.values() for point in points):
        plots.append(_cost_figure(benchmark, spent))
    if apart:
        plots.append(_difference_figure(benchmark, apart, first=next(iter(means))))
    return plots


def _slug(benchmark: str) -> str:
    return benchmark.replace(" ", "-")


def _score_figure(benchmark: str, means: dict[str, dict[int, tuple[float, float]]]) -> Plot:
    lasts = {group: list(series.values())[-1][0] for group, series in means.items()}
    best = max(lasts, key=lambda group: lasts[group])
    worst = min(lasts, key=lambda group: lasts[group])
    says = f"best {best} {lasts[best]:.3f}, worst {worst} {lasts[worst]:.3f}"
    if len(means) == 1:
        [(group, series)] = means.items()
        begin = next(iter(series.values()))[0]
        says = f"{group} went from {begin:.3f} to {lasts[group]:.3f}"
    note = "Mean over the runs of a group; bars are one standard error over them."
    svg = draw(_paint_scores, means, height_in=4.2)
    return Plot(f"scores-{_slug(benchmark)}", f"{benchmark}: {says}", note, svg)


def _cost_figure(benchmark: str, spent: dict[str, list[Row]]) -> Plot:
    lasts = {group: points[-1]["score"] for group, points in spent.items()}
    best = max(lasts, key=lambda group: lasts[group])
    worst = min(lasts, key=lambda group: lasts[group])
    best_and_worst = dict.fromkeys([best, worst])
    says = "; ".join(_cost_says(group, spent[group][-1]) for group in best_and_worst)
    svg = draw(_paint_costs, spent, rows=len(COSTS), height_in=7.5)
    title = f"{benchmark}, by what it cost: {says}"
    return Plot(f"costs-{_slug(benchmark)}", title, COST_NOTE, svg)


def _difference_figure(benchmark: str, apart: dict[str, tuple[float, float]], first: str) -> Plot:
    num_lower = sum(mean < 0 for mean, _ in apart.values())
    title = f"{benchmark}: {num_lower} of {len(apart)} end below {first}"
    note = (
        f"Last score minus that of {first}; bars are one standard error over the runs, taken in"
        " pairs."
    )
    svg = draw(_paint_differences, apart, height_in=1.2 + 0.32 * len(apart))
    return Plot(f"differences-{_slug(benchmark)}", title, note, svg)


def by_iteration(rows: list[Row]) -> dict[int, tuple[float, float]]:
    """Mean and standard error over the runs, by iteration; a single run has standard error 0."""
    return {
        iteration: mean_and_error([r["score"] for r in some])
        for iteration, some in sorted(by(rows, "iteration").items())
    }


def by_cost(rows: list[Row]) -> list[Row]:
    """Means of score and costs over the runs, one row per iteration."""
    columns = ("score", *COSTS)
    return [
        {name: fmean(row[name] for row in some) for name in columns}
        for _, some in sorted(by(rows, "iteration").items())
    ]


def _cost_says(group: str, last: Row) -> str:
    return f"{group} {last['score']:.3f} after {last['steps']:,.0f} steps"


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is 0 for a single value. Raises StatisticsError if
    there are no values.

    >>> mean_and_error([0.25, 0.75]), mean_and_error([0.5])
    ((0.5, 0.25), (0.5, 0.0))
    """
    if len(values) == 1:
        return fmean(values), 0.0
    return fmean(values), stdev(values) / math.sqrt(len(values))


def differences(rows: list[Row], first: str) -> dict[str, tuple[float, float]]:
    """For each group except the first: the mean and standard error of its runs' last scores minus
    those of the first group, pair by pair. Groups that share no pair with it are left out."""
    lasts = {
        group: {pair: of_pair[-1]["score"] for pair, of_pair in by(of_group, "pair").items()}
        for group, of_group in by(rows, "group").items()
    }
    apart = {}
    for group, scores in lasts.items():
        if group == first:
            continue
        baselines = lasts[first]
        if pairs := scores.keys() & baselines.keys():
            apart[group] = mean_and_error([scores[pair] - baselines[pair] for pair in pairs])
    return apart


@dataclass(frozen=True)
class Look:
    """How a group's line is drawn; that of the first group, the baseline, is wide and on top."""

    width: float
    dashes: str
    zorder: int


def _look(number: int) -> Look:
    dashes = "-" if number < NAME_COLOURS else "--"
    if number == 0:
        return Look(width=2.6, dashes=dashes, zorder=3)
    return Look(width=1.2, dashes=dashes, zorder=2)


def _paint_scores(axes: Any, means: dict[str, dict[int, tuple[float, float]]]) -> None:
    colours = Colours(means)
    for number, (group, series) in enumerate(means.items()):
        mean, error = zip(*series.values(), strict=True)
        look = _look(number)
        axes.errorbar(
            list(series),
            mean,
            yerr=error,
            marker="o",
            capsize=3,
            label=group,
            color=colours[group],
            linewidth=look.width,
            linestyle=look.dashes,
            zorder=look.zorder,
        )
    axes.set_xticks(sorted({t for series in means.values() for t in series}))
    axes.set(xlabel=COMPLETED, ylabel=SCORE_AXIS)
    legend(axes, 2)


def _paint_costs(axes: list[Any], spent: dict[str, list[Row]]) -> None:
    colours = Colours(spent)
    for panel, (name, label) in zip(axes, COSTS.items(), strict=True):
        for number, (group, points) in enumerate(spent.items()):
            look = _look(number)
            panel.plot(
                [point[name] for point in points],
                [point["score"] for point in points],
                look.dashes,
                marker="o",
                label=group,
                color=colours[group],
                linewidth=look.width,
                zorder=look.zorder,
            )
        panel.set_xlim(left=0)
        panel.xaxis.get_major_locator().set_params(nbins=6, integer=True)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set(xlabel=label, ylabel=SCORE_AXIS)
    legend(axes, 2)


def _paint_differences(axes: Any, apart: dict[str, tuple[float, float]]) -> None:
    mean, error = zip(*apart.values(), strict=True)
    axes.barh(list(apart), mean, xerr=error, color=GREY, ecolor=INK, height=0.55)
    axes.axvline(0, linewidth=0.8, color=INK)
    axes.invert_yaxis()
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.set(xlabel="difference of scores")
