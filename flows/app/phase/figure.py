"""The diagram: one panel per method, one line per shape of error; it plots the gain against the
share of wrong verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.app.phase.grid import CLEAN, OWN
from tasks.reports.draw import GREY, PALETTE, by
from warehouse.schemas import Row

TITLES = {"spice": "SPICE", "rzero": "R-Zero"}
SHAPES = {
    "independent": "on single answers",
    "task": "on whole tasks",
    "mistake": "for the most frequent mistake",
    "length": "for long replies",
}


def draw_diagram(cells: Sequence[Row], path: Path) -> None:
    """Draw a table of cells as a PNG file.

    Points are the mean gain in held-out score over the base model; below 0, a method has made its
    model worse. Each line begins at the clean runs and follows the grid's shares. Cells whose
    verdicts were not measured have no point.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    of_method = by(cells, "method")
    figure = Figure(figsize=(4.2 * len(of_method), 3.4), layout="constrained", dpi=130)
    for number, (method, rows) in enumerate(of_method.items(), start=1):
        axes = figure.add_subplot(1, len(of_method), number)
        _paint(axes, method, rows)
    FigureCanvasAgg(figure).print_png(str(path))


def _paint(axes: Any, method: str, rows: Sequence[Row]) -> None:
    own = [row for row in rows if row["errors"] == OWN]
    measured = [row for row in rows if row["errors"] != OWN and row["verdict error"] is not None]
    clean = [row for row in measured if row["errors"] == CLEAN]
    shapes = by([row for row in measured if row["errors"] != CLEAN], "errors")
    for colour, (shape, of_shape) in zip(PALETTE, shapes.items(), strict=False):
        points = sorted(clean + of_shape, key=lambda row: row["share"])
        axes.plot(
            [row["verdict error"] for row in points],
            [row["last"] - row["before"] for row in points],
            marker="o",
            color=colour,
            label=SHAPES.get(shape, shape),
        )
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    for row in own:
        gain = row["last"] - row["before"]
        axes.axhline(gain, color=GREY, linestyle=":", label="its own verdicts")
    axes.set_title(TITLES.get(method, method), loc="left")
    axes.set_xlabel("share of verdicts that were wrong")
    axes.set_ylabel("gain in held-out score")
    if shapes or own:
        axes.legend(frameon=False, fontsize=8)
