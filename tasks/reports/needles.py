"""The heat map of needles in haystacks: the share found at every length and depth, before training
and now."""

from __future__ import annotations

from typing import Any

from tasks.reports.draw import Plot, by, draw
from tasks.reports.percent import percent
from warehouse.schemas import Row

# text colours on a cell, whatever the page's background
ON_LIGHT = "#1b1f24"
ON_DARK = "#ffffff"
DARK_FROM = 0.6  # the share from which a cell is dark
MOST_CELLS = 80  # maximum number of cells that show numbers


def needles_found(rows: list[Row]) -> Plot:
    """The share of needles found in the first and the last iteration, from rows of
    `needles.sql`."""
    note = "Share of right answers, by length of the haystack and position of the needle in it, %."
    if not rows:
        return Plot("needles", "No needle was hidden", note)
    of_iteration = by(rows, "iteration")
    first_and_last = dict.fromkeys((min(of_iteration), max(of_iteration)))
    shown = {iteration: of_iteration[iteration] for iteration in first_and_last}
    shares = " → ".join(percent(*_totals(cells)) for cells in shown.values())
    num_needles = _totals(rows)[1] // len(of_iteration)
    title = f"Needles found, of {num_needles:,}: {shares}"
    return Plot("needles", title, note, draw(_paint, shown, columns=len(shown), height_in=3.2))


def _totals(cells: list[Row]) -> tuple[int, int]:
    """The number of needles found, and of all needles."""
    return sum(cell["num_correct"] for cell in cells), sum(cell["n"] for cell in cells)


def _paint(axes: Any, shown: dict[int, list[Row]]) -> None:
    panels = axes if isinstance(axes, list) else [axes]
    for panel, (iteration, cells) in zip(panels, shown.items(), strict=True):
        _paint_cells(panel, cells)
        panel.set_title("before training" if iteration == 0 else f"iteration {iteration}")
        panel.invert_yaxis()
        panel.grid(False)
        panel.tick_params(length=0)
        panel.set_xlabel("tokens")
    panels[0].set_ylabel("depth of the needle, %")


def _paint_cells(panel: Any, cells: list[Row]) -> None:
    lengths = sorted({cell["length_tokens"] for cell in cells})
    depths = sorted({cell["depth"] for cell in cells})
    share_of = {(c["length_tokens"], c["depth"]): c["num_correct"] / c["n"] for c in cells}
    missing = float("nan")
    grid = [[share_of.get((length, depth), missing) for length in lengths] for depth in depths]
    panel.pcolormesh(grid, cmap="YlGn", vmin=0, vmax=1, edgecolor="white", linewidth=0.8)
    if len(cells) <= MOST_CELLS:
        for (length, depth), share in share_of.items():
            panel.text(
                lengths.index(length) + 0.5,
                depths.index(depth) + 0.5,
                f"{100 * share:.0f}",
                ha="center",
                va="center",
                color=ON_DARK if share > DARK_FROM else ON_LIGHT,
                fontsize=9,
            )
    centres = [i + 0.5 for i in range(max(len(lengths), len(depths)))]
    panel.set_xticks(centres[: len(lengths)], [_tokens(length) for length in lengths])
    panel.set_yticks(centres[: len(depths)], [f"{100 * depth:g}" for depth in depths])


def _tokens(length: int) -> str:
    """
    >>> _tokens(400), _tokens(32_768), _tokens(100_000)
    ('400', '32K', '98K')
    """
    if length < 1024:
        return str(length)
    return f"{length / 1024:.0f}K"
