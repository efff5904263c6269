"""Figures by task type: how hard the tasks are, how many are kept, and how often a rule and a
judge's votes differ."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tasks.reports.draw import (
    Colours,
    Plot,
    by,
    draw,
    iteration_axis,
    legend,
    short,
    x_of_steps,
)
from tasks.reports.learning import BY_TIME
from tasks.reports.percent import percent
from warehouse.schemas import Row


def difficulty_by_type(rows: list[Row]) -> Plot:
    """The mean score of answers to candidate tasks of each type, by step, from rows of
    `task_types.sql`."""
    note = (
        "Mean score of the answers to a type's candidate tasks at each step; 0: none succeeds, 1:"
        " all do."
    )
    scored = [r for r in rows if r["num_scored"]]
    of_type = by(scored, "task_type")
    if len(of_type) < 2:
        return Plot("difficulty-by-type", "Candidate tasks have fewer than two types", note)
    last = max(r["iteration"] for r in scored)
    means = [f"{short(name)} {_mean(some, last)}" for name, some in of_type.items()]
    title = f"Mean score by type, iteration {last}: {'; '.join(means)}"
    svg = draw(_paint, of_type, "mean_score", "mean score, 0 to 1", 1.0)
    return Plot("difficulty-by-type", title, note, svg)


def kept_by_type(rows: list[Row]) -> Plot:
    """The share of each type among the tasks kept, by step, from rows of `task_types.sql`."""
    note = "Share of each type among the tasks kept at each step, %."
    kept_at: Counter[tuple[int, str, int]] = Counter()
    for r in rows:
        kept_at[_at(r)] += r["num_kept"]
    shares = [
        {**r, "share": 100 * r["num_kept"] / kept_at[_at(r)]} for r in rows if kept_at[_at(r)]
    ]
    of_type = by(shares, "task_type")
    if len(of_type) < 2:
        return Plot("kept-by-type", "Kept tasks have fewer than two types", note)
    last = max(r["iteration"] for r in shares)
    kept = {
        name: sum(r["num_kept"] for r in some if r["iteration"] == last)
        for name, some in of_type.items()
    }
    total = max(1, sum(kept.values()))
    says = "; ".join(f"{short(name)} {percent(num, total)}" for name, num in kept.items())
    title = f"Types of the tasks kept, iteration {last}: {says}"
    svg = draw(_paint, of_type, "share", "share of kept tasks, %", 100.0)
    return Plot("kept-by-type", title, note, svg)


def disagreements(rows: list[Row]) -> Plot:
    """The share of answers of each type on which rule and votes differ, by step, from rows of
    `disagreements.sql`."""
    note = (
        "Of the answers that both decided, the share on which the rule and the majority of votes"
        " differ; the dashed line counts those that only the votes accept."
    )
    if not rows:
        return Plot("disagreements", "No answer was decided by both a rule and votes", note)
    last = max(r["iteration"] for r in rows)
    says = []
    for task_type, some in by([r for r in rows if r["iteration"] == last], "task_type").items():
        num_differ = sum(_num_differ(r) for r in some)
        says.append(f"{short(task_type)} {percent(num_differ, sum(r['n'] for r in some))}")
    title = f"Rule and votes differ, iteration {last}: {'; '.join(says)}"
    svg = draw(_paint_disagreements, by(rows, "task_type"))
    return Plot("disagreements", title, note, svg)


def _num_differ(row: Row) -> int:
    return row["num_votes_only"] + row["num_rule_only"]


def _at(row: Row) -> tuple[int, str, int]:
    return row["iteration"], row["phase"], row["step"]


def _mean(rows: list[Row], iteration: int) -> str:
    """The mean score of the candidates of an iteration."""
    some = [r for r in rows if r["iteration"] == iteration]
    num = sum(r["num_scored"] for r in some)
    if not num:
        return "–"
    return f"{sum(r['mean_score'] * r['num_scored'] for r in some) / num:.2f}"


def _paint(axes: Any, of_type: dict[str, list[Row]], column: str, ylabel: str, top: float) -> None:
    colours = Colours()
    for task_type, rows in of_type.items():
        axes.plot(
            x_of_steps(rows),
            [r[column] for r in rows],
            marker="o",
            markersize=3,
            color=colours[task_type],
            label=short(task_type),
        )
    axes.set_ylim(-0.03 * top, 1.03 * top)
    iteration_axis(axes, [r for rows in of_type.values() for r in rows])
    axes.set(xlabel=BY_TIME, ylabel=ylabel)
    legend(axes, 3)


def _paint_disagreements(axes: Any, of_type: dict[str, list[Row]]) -> None:
    colours = Colours()
    for task_type, rows in of_type.items():
        x = x_of_steps(rows)
        colour = colours[task_type]
        differ = [100 * _num_differ(r) / r["n"] for r in rows]
        votes_only = [100 * r["num_votes_only"] / r["n"] for r in rows]
        axes.plot(x, differ, marker="o", markersize=3, color=colour, label=short(task_type))
        axes.plot(x, votes_only, "--", color=colour)
    axes.set_ylim(bottom=0)
    iteration_axis(axes, [r for rows in of_type.values() for r in rows])
    axes.set(xlabel=BY_TIME, ylabel="answers, %")
    legend(axes, 3)
