"""Runs side by side: the held-out scores of several groups of runs on one page."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tasks.reports.costs import COSTS, with_costs
from tasks.reports.draw import GREY, INK, PALETTE, Colours, Plot, by, draw, legend
from tasks.reports.page import Section, render, write_page
from warehouse.query import query
from warehouse.schemas import Row
from warehouse.store import Store

SCORES = """
    select run, benchmark, iteration, score from evaluations
    where metric = 'score' and list_contains($runs, run) order by benchmark, iteration
"""
COMPLETED = "iterations completed"
COST_NOTE = (
    "The same scores against the cost of the updates so far, over all players: optimizer steps, sampled tokens, and "
    "the seconds of their stages. Held-out scores, probes and pauses are not counted."
)


def report_runs(
    store: Store,
    name: str,
    groups: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[Row]],
    left_out: Sequence[str] = (),
) -> Path:
    """Write `<store>/reports/<name>.html` and return its path. It shows the scores of every group (name -> runs), with
    the first group as the baseline of the others, and `tables` (title -> rows). Benchmarks that most groups have come
    first; those in `left_out` are not drawn."""
    group_of = {run: group for group, runs in groups.items() for run in runs}
    found = by(query(store.root, SCORES, {"runs": list(group_of)}), "run")
    scored = [{**row, "group": group} for run, group in group_of.items() for row in found.get(run, [])]
    rows = with_costs(store, scored)
    shown = {benchmark: found for benchmark, found in by(rows, "benchmark").items() if benchmark not in left_out}
    widest_first = sorted(shown.items(), key=lambda pair: -len(by(pair[1], "group")))
    plots = [figure for benchmark, found in widest_first for figure in figures(benchmark, found)]
    page = {
        "name": name,
        "made_at": time.strftime("%Y-%m-%d %H:%M"),
        "num_runs": len(group_of),
        "sections": [Section("Held-out scores", plots)],
        "tables": {title: rows for title, rows in tables.items() if rows},
        "tiles": [],
    }
    return write_page(store, f"{name}.html", render("report_runs.html.jinja", **page))


def figures(benchmark: str, rows: list[Row]) -> list[Plot]:
    """Scores by iteration, and how each group's last scores differ from the first group's."""
    means = {group: by_iteration(found) for group, found in by(rows, "group").items()}
    ends = {group: list(series.values())[-1][0] for group, series in means.items()}
    first, slug = next(iter(means)), benchmark.replace(" ", "-")
    best, worst = max(ends, key=lambda g: ends[g]), min(ends, key=lambda g: ends[g])
    spread = f"best {best} {ends[best]:.3f}, worst {worst} {ends[worst]:.3f}"
    if len(means) == 1:
        (begin, _), *_, (end, _) = [*means[first].values()] * 2
        spread = f"{first} went from {begin:.3f} to {end:.3f}"
    note = "Mean over the runs of a group; bars are one standard error over them."
    plots = [Plot(f"scores-{slug}", f"{benchmark}: {spread}", note, draw(_paint_scores, means, height_in=4.2))]
    spent = {group: by_cost(found) for group, found in by(rows, "group").items()}
    if any(point["steps"] for points in spent.values() for point in points):
        says = "; ".join(_cost_says(group, spent[group][-1]) for group in dict.fromkeys([best, worst]))
        title = f"{benchmark}, by what it cost: {says}"
        plots.append(Plot(f"costs-{slug}", title, COST_NOTE, draw(_paint_costs, spent, rows=3, height_in=7.5)))
    if apart := differences(rows, first):
        lower = sum(mean < 0 for mean, _ in apart.values())
        title = f"{benchmark}: {lower} of {len(apart)} end below {first}"
        note = f"Last score minus that of {first}; bars are one standard error over the runs, taken in pairs."
        height = 1.2 + 0.32 * len(apart)
        plots.append(Plot(f"differences-{slug}", title, note, draw(_paint_differences, apart, height_in=height)))
    return plots


def by_iteration(rows: list[Row]) -> dict[int, tuple[float, float]]:
    """Mean and standard error over the runs, by iteration; a single run has standard error 0."""
    return {t: mean_and_error([r["score"] for r in found]) for t, found in sorted(by(rows, "iteration").items())}


def by_cost(rows: list[Row]) -> list[Row]:
    """Means of score and costs over the runs, one row per iteration."""
    columns = ("score", *COSTS)
    return [
        {name: fmean(row[name] for row in found) for name in columns}
        for _, found in sorted(by(rows, "iteration").items())
    ]


def _cost_says(group: str, last: Row) -> str:
    return f"{group} {last['score']:.3f} after {last['steps']:,.0f} steps"


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """
    >>> mean_and_error([0.25, 0.75]), mean_and_error([0.5])
    ((0.5, 0.25), (0.5, 0.0))
    """
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def differences(rows: list[Row], first: str) -> dict[str, tuple[float, float]]:
    """For each group but the first: mean and error of its runs' last scores minus the first group's, run by run."""
    lasts = {
        group: [found[-1]["score"] for found in by(of_group, "run").values()]
        for group, of_group in by(rows, "group").items()
    }
    return {
        group: mean_and_error([one - other for one, other in zip(ends, lasts[first], strict=False)])
        for group, ends in lasts.items()
        if group != first
    }


def _paint_scores(axes: Any, means: dict[str, dict[int, tuple[float, float]]]) -> None:
    colours = Colours(means)
    for number, (group, series) in enumerate(means.items()):
        mean, error = zip(*series.values(), strict=True)
        width, dashes = 1.2 if number else 2.6, "-" if number < len(PALETTE) else "--"
        look = {"color": colours[group], "linewidth": width, "linestyle": dashes, "zorder": 2 if number else 3}
        axes.errorbar(list(series), mean, yerr=error, marker="o", capsize=3, label=group, **look)
    axes.set_xticks(sorted({t for series in means.values() for t in series}))
    axes.set(xlabel=COMPLETED, ylabel="score, 0 to 1")
    legend(axes, 2)


def _paint_costs(axes: list[Any], spent: dict[str, list[Row]]) -> None:
    colours = Colours(spent)
    for panel, (name, label) in zip(axes, COSTS.items(), strict=True):
        for number, (group, points) in enumerate(spent.items()):
            x, y = [point[name] for point in points], [point["score"] for point in points]
            look = {"linewidth": 1.2 if number else 2.6, "zorder": 2 if number else 3, "color": colours[group]}
            panel.plot(x, y, "-" if number < len(PALETTE) else "--", marker="o", label=group, **look)
        panel.set_xlim(left=0)
        panel.xaxis.get_major_locator().set_params(nbins=6, integer=True)
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set(xlabel=label, ylabel="score, 0 to 1")
    legend(axes, 2)


def _paint_differences(axes: Any, apart: dict[str, tuple[float, float]]) -> None:
    mean, error = zip(*apart.values(), strict=True)
    axes.barh(list(apart), mean, xerr=error, color=GREY, ecolor=INK, height=0.55)
    axes.axvline(0, linewidth=0.8, color=INK)
    axes.invert_yaxis()
    axes.xaxis.get_major_locator().set_params(nbins=5)
    axes.set(xlabel="difference of scores")
