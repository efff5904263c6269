"""The figure of learnable information: how much tasks reveal about their documents, and how much
rubrics add to their tasks."""

from __future__ import annotations

import math
from typing import Any

from tasks.reports.draw import GREY, PALETTE, Plot, by, draw, legend
from warehouse.schemas import Row

SAYS = {"task": "a task tells {} nats about its document", "rubric": "its rubric {} nats more"}
# a column of estimates, that of its standard errors, and its colour
LINES = (("information", "standard_error", PALETTE[0]), ("control", "control_error", GREY))


def information(rows: list[Row]) -> Plot:
    """How much tasks reveal about their documents, and how much rubrics add, by iteration, from
    rows of `learnable_information.sql`."""
    note = (
        "Log-probability of a reply with its own document shown, minus the log of its mean"
        " probability over several documents; a rubric's mean weighs documents by how likely they"
        " make the task. The dashed line is the most that a task can show, the log of the number of"
        " documents; a task at this bound leaves its rubric nothing to show. The control puts"
        " another document in the place of the true one: it is 0 if documents do not matter, and"
        " below 0 if they do. Bars are standard errors over tasks."
    )
    if not rows:
        return Plot("information", "What tasks tell about their documents was not measured", note)
    last = [r for r in rows if r["iteration"] == rows[-1]["iteration"]]
    says = [_information_says(r) for r in last]
    bounds = [f"{r['kind']}s, {_at_bound(r)}" for r in last if r["num_at_bound"]]
    if bounds:
        note = f"{note} At the bound: {'; '.join(bounds)}."
    controls = " and ".join(_measured(r["control"], r["control_error"]) for r in last)
    left_out = sum(r["num_left_out"] for r in last)
    counted = f"n {last[0]['n']}"
    if left_out:
        counted += f", {left_out} left out"
    title = f"In iteration {last[0]['iteration']} {', '.join(says)}"
    note = f"{note} In this iteration ({counted}) the control is {controls}."
    svg = draw(_paint, by(rows, "kind"), columns=2, height_in=2.9)
    return Plot("information", title, note, svg)


def _information_says(row: Row) -> str:
    return SAYS[row["kind"]].format(_measured(row["information"], row["standard_error"]))


def _at_bound(row: Row) -> str:
    return f"{row['num_at_bound']} of {row['n']}"


def _measured(value: float, error: float | None) -> str:
    """
    >>> _measured(1.234, 0.056), _measured(-0.5, None)
    ('1.23 ± 0.06', '-0.50')
    """
    if error is None:
        return f"{value:.2f}"
    return f"{value:.2f} ± {error:.2f}"


def _paint(axes: list[Any], of_kind: dict[str, list[Row]]) -> None:
    for panel, (kind, rows) in zip(axes, of_kind.items(), strict=False):
        x = [r["iteration"] for r in rows]
        for name, error, colour in LINES:
            y = [r[name] for r in rows]
            errors = [r[error] or 0.0 for r in rows]
            panel.errorbar(x, y, errors, marker="o", color=colour, label=name)
        if kind == "task":
            bound = [math.log(r["num_documents"]) for r in rows]
            panel.plot(x, bound, "--", marker="_", color=PALETTE[0], label="most it can be")
        panel.set_yscale("symlog", linthresh=3)  # controls may lie far below
        panel.yaxis.set_major_formatter("{x:g}")
        panel.set_xticks(x)
        panel.set_title(f"{kind}, nats")
        panel.set_xlabel("iteration")
    legend(axes)
