"""Figures of further measurements by iteration: those of held-out evaluations other than the score,
and those of a judge."""

from __future__ import annotations

from typing import Any

from tasks.reports.draw import GREY, PALETTE, Plot, by, draw, hover, legend, short, value_says
from tasks.reports.learning import COMPLETED, JUDGE_MONITOR, MONITOR, SCORE, ends
from warehouse.schemas import Row

MOST = len(PALETTE)
NUM_NAMED = 3  # series named in the title
WIDE = 54  # maximum letters of a name: what a legend of one column has room for


def also_measured(evaluations: list[Row]) -> Plot:
    """Shares other than held-out scores and their parts, from benchmarks that are not monitors.

    Leaves out shares that stay at 0, and those that are their benchmark's score under another name.
    """
    note = (
        "Other shares measured in the held-out evaluations; if there are many, those that changed"
        " most."
    )
    others = [r for r in evaluations if not r["benchmark"].endswith(MONITOR)]
    shares = {name: rows for name, rows in _series(others).items() if _is_share_over_time(rows)}
    if not shares:
        return Plot("also-measured", "Nothing else was measured in the held-out evaluations", note)
    most_changed = sorted(shares.items(), key=lambda pair: -abs(_change(pair[1])))
    chosen = dict(most_changed[:MOST])
    title = f"Also measured: {_says(chosen)}"
    return Plot("also-measured", title, note, draw(_paint, chosen, "share"))


def judge_monitor(evaluations: list[Row]) -> Plot:
    """Errors of marks against the truth; pass or fail verdicts have their own figure."""
    note = (
        "The judge's marks in training compared with the known truth: means of each iteration. None"
        " of this is rewarded."
    )
    series = _series([r for r in evaluations if r["benchmark"] == JUDGE_MONITOR])
    if not series:
        return Plot("judge-monitor", "No mark has a known truth", note)
    title = f"Judge's marks: {_says(series)}"
    return Plot("judge-monitor", title, note, draw(_paint, series, "mean"))


def _is_share_over_time(rows: list[Row]) -> bool:
    scores = [r["score"] for r in rows]
    return len(scores) > 1 and all(0 <= score <= 1 for score in scores) and any(scores)


def _series(rows: list[Row]) -> dict[str, list[Row]]:
    """Measurements by iteration for each metric's name, preceded by the benchmark's if there are
    several benchmarks."""
    scores = by([r for r in rows if r["metric"] == SCORE and r["is_held_out"]], "benchmark")
    others = [
        r
        for r in rows
        if not r["metric"].startswith(f"{SCORE}_")
        and not (r["metric"] == SCORE and r["is_held_out"])
    ]
    measured = {
        (benchmark, metric): some
        for (benchmark, metric), some in by(others, "benchmark", "metric").items()
        if _values(some) != _values(scores.get(benchmark, []))
    }
    num_benchmarks = len({benchmark for benchmark, _ in measured})
    series = {}
    for (benchmark, metric), some in measured.items():
        name = f"{benchmark}: {metric}" if num_benchmarks > 1 else metric
        series[name.replace("_", " ")] = some
    return series


def _values(rows: list[Row]) -> list[tuple[int, float]]:
    return [(r["iteration"], r["score"]) for r in rows]


def _change(rows: list[Row]) -> float:
    return rows[-1]["score"] - rows[0]["score"]


def _says(series: dict[str, list[Row]]) -> str:
    return "; ".join(f"{name} {ends(rows)}" for name, rows in list(series.items())[:NUM_NAMED])


def _paint(axes: Any, series: dict[str, list[Row]], ylabel: str) -> None:
    for colour, (name, rows) in zip(PALETTE, series.items(), strict=False):
        x = [r["iteration"] for r in rows]
        y = [r["score"] for r in rows]
        axes.plot(x, y, marker="o", color=colour, label=short(name, WIDE))
        hover(axes, x, y, [f"{value_says(v)}\n{name}, iteration {t}" for t, v in _values(rows)])
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(sorted({r["iteration"] for rows in series.values() for r in rows}))
    axes.set(xlabel=COMPLETED, ylabel=ylabel)
    legend(axes, 2)
