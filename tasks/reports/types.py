"""Figures by task type: how hard its tasks are, how many are kept, and where a rule and a judge's votes differ."""

from __future__ import annotations

from typing import Any

from tasks.reports.draw import Colours, Plot, by, draw, iteration_axis, legend, percent, progress, short
from warehouse.schemas import Row


def difficulty_by_type(rows: list[Row]) -> Plot:
    note = "Mean score of the answers to a type's candidate tasks at each step; 0: none succeeds, 1: all do."
    scored = [r for r in rows if r["num_scored"]]
    if len({r["task_type"] for r in scored}) < 2:
        return Plot("difficulty-by-type", "Candidate tasks have fewer than two types", note)
    of_type = by(scored, "task_type")
    last = max(r["iteration"] for r in scored)
    says = [f"{short(t)} {_mean(found, last)}" for t, found in of_type.items()]
    title = f"Mean score by type, iteration {last}: " + "; ".join(says)
    return Plot("difficulty-by-type", title, note, draw(_paint, of_type, "mean_score", "mean score, 0 to 1", 1.0))


def kept_by_type(rows: list[Row]) -> Plot:
    note = "Share of each type among the tasks kept at each step, %."
    totals: dict[tuple[int, str, int], int] = {}
    for r in rows:
        totals[_at(r)] = totals.get(_at(r), 0) + r["num_kept"]
    shares = [{**r, "share": 100 * r["num_kept"] / totals[_at(r)]} for r in rows if totals[_at(r)]]
    of_type = by(shares, "task_type")
    if len(of_type) < 2:
        return Plot("kept-by-type", "Kept tasks have fewer than two types", note)
    last = max(r["iteration"] for r in shares)
    kept = {t: sum(r["num_kept"] for r in found if r["iteration"] == last) for t, found in of_type.items()}
    says = "; ".join(f"{short(t)} {percent(n, max(1, sum(kept.values())))}" for t, n in kept.items())
    title = f"Types of the tasks kept, iteration {last}: {says}"
    return Plot("kept-by-type", title, note, draw(_paint, of_type, "share", "share of kept tasks, %", 100.0))


def disagreements(rows: list[Row]) -> Plot:
    note = (
        "Of the answers that both decided, the share on which the rule and the majority of votes differ; the dashed "
        "line counts those that only the votes accept."
    )
    if not rows:
        return Plot("disagreements", "No answer was decided by both a rule and votes", note)
    rates = [
        {
            **r,
            "differ": 100 * (r["num_votes_only"] + r["num_rule_only"]) / r["n"],
            "votes only": 100 * r["num_votes_only"] / r["n"],
        }
        for r in rows
    ]
    last = max(r["iteration"] for r in rows)
    here = by([r for r in rows if r["iteration"] == last], "task_type")
    says = []
    for task_type, found in here.items():
        differ = sum(r["num_votes_only"] + r["num_rule_only"] for r in found)
        says.append(f"{short(task_type)} {percent(differ, sum(r['n'] for r in found))}")
    title = f"Rule and votes differ, iteration {last}: " + "; ".join(says)
    return Plot("disagreements", title, note, draw(_paint_disagreements, by(rates, "task_type")))


def _at(row: Row) -> tuple[int, str, int]:
    return row["iteration"], row["phase"], row["step"]


def _mean(rows: list[Row], iteration: int) -> str:
    here = [r for r in rows if r["iteration"] == iteration]
    num = sum(r["num_scored"] for r in here)
    return f"{sum(r['mean_score'] * r['num_scored'] for r in here) / num:.2f}" if num else "–"


def _paint(axes: Any, of_type: dict[str, list[Row]], column: str, ylabel: str, top: float) -> None:
    colours = Colours()
    for task_type, rows in of_type.items():
        y = [r[column] for r in rows]
        axes.plot(progress(rows), y, marker="o", markersize=3, color=colours[task_type], label=short(task_type))
    axes.set_ylim(-0.03 * top, 1.03 * top)
    iteration_axis(axes, [r for rows in of_type.values() for r in rows])
    axes.set(xlabel="iterations completed", ylabel=ylabel)
    legend(axes, 3)


def _paint_disagreements(axes: Any, of_type: dict[str, list[Row]]) -> None:
    colours = Colours()
    for task_type, rows in of_type.items():
        x, colour = progress(rows), colours[task_type]
        axes.plot(x, [r["differ"] for r in rows], marker="o", markersize=3, color=colour, label=short(task_type))
        axes.plot(x, [r["votes only"] for r in rows], "--", color=colour)
    axes.set_ylim(bottom=0)
    iteration_axis(axes, [r for rows in of_type.values() for r in rows])
    axes.set(xlabel="iterations completed", ylabel="answers, %")
    legend(axes, 3)
