"""Figures of further measurements by iteration: of held-out evaluations, besides the score, and of a judge."""

from __future__ import annotations

from typing import Any

from tasks.reports.draw import GREY, PALETTE, Plot, by, draw, legend, short
from tasks.reports.learning import COMPLETED, MONITOR, SCORE, ends
from warehouse.schemas import Row

MOST = len(PALETTE)
NAMED = 3  # in the title
WIDE = 54  # letters of a name: as many as a legend of one column holds


def also_measured(evaluations: list[Row]) -> Plot:
    """Shares besides the score and its parts, from benchmarks other than monitors; leaves out those that stay at 0, and
    those that are their benchmark's score under another name."""
    note = "Other shares measured in the held-out evaluations; if there are many, those that changed most."
    series = {
        name: rows
        for name, rows in _series([r for r in evaluations if not r["benchmark"].endswith(" monitor")]).items()
        if len(rows) > 1 and all(0 <= r["score"] <= 1 for r in rows) and any(r["score"] for r in rows)
    }
    if not series:
        return Plot("also-measured", "Nothing else was measured in the held-out evaluations", note)
    chosen = dict(sorted(series.items(), key=lambda pair: -abs(_change(pair[1])))[:MOST])
    return Plot("also-measured", f"Also measured: {_says(chosen)}", note, draw(_paint, chosen, "share"))


def judge_monitor(evaluations: list[Row]) -> Plot:
    """Errors of marks against the truth; verdicts of pass or fail have a figure of their own."""
    note = "The judge's marks in training compared with the known truth: means of each iteration. None of this is paid."
    series = _series([r for r in evaluations if r["benchmark"] == MONITOR])
    if not series:
        return Plot("judge-monitor", "No mark has a known truth", note)
    return Plot("judge-monitor", f"Judge's marks: {_says(series)}", note, draw(_paint, series, "mean"))


def _series(rows: list[Row]) -> dict[str, list[Row]]:
    """Measurements by iteration under the metric's name, preceded by the benchmark's if there are several."""
    scores = by([r for r in rows if r["metric"] == SCORE], "benchmark")
    rows = [r for r in rows if r["metric"] != SCORE and not r["metric"].startswith(f"{SCORE}_")]
    measured = by(rows, "benchmark", "metric")
    named = {key: found for key, found in measured.items() if _values(found) != _values(scores.get(key[0], []))}
    several = len({benchmark for benchmark, _ in named}) > 1
    return {(f"{b}: {m}" if several else m).replace("_", " "): found for (b, m), found in named.items()}


def _values(rows: list[Row]) -> list[tuple[int, float]]:
    return [(r["iteration"], r["score"]) for r in rows]


def _change(rows: list[Row]) -> float:
    return rows[-1]["score"] - rows[0]["score"]


def _says(series: dict[str, list[Row]]) -> str:
    return "; ".join(f"{name} {ends(rows)}" for name, rows in list(series.items())[:NAMED])


def _paint(axes: Any, series: dict[str, list[Row]], ylabel: str) -> None:
    for colour, (name, rows) in zip(PALETTE, series.items(), strict=False):
        x = [r["iteration"] for r in rows]
        axes.plot(x, [r["score"] for r in rows], marker="o", color=colour, label=short(name, WIDE))
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_xticks(sorted({r["iteration"] for rows in series.values() for r in rows}))
    axes.set(xlabel=COMPLETED, ylabel=ylabel)
    legend(axes, 2)
