"""A figure of all claims about scores: each claim's effect with its interval, by study."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Self

from flows.app.evidence import CANNOT_TELL, CONTRADICTED, SHOWN, SMALLER
from tasks.reports.draw import GREY, PALETTE
from warehouse.schemas import Row

SUFFIX = "-claims.jsonl"
COLOURS: Mapping[str, str] = {
    SHOWN: PALETTE[0],
    CONTRADICTED: PALETTE[1],
    SMALLER: PALETTE[2],
    CANNOT_TELL: GREY,
}
SCORES = ("final score", "gain", "mean score over iterations")  # what names of scores begin with
INTERVAL = re.compile(r"(\S+) \[(\S+), (\S+)\]")
SHOWN_EFFECTS = (-0.3, 0.6)  # longer intervals end in an arrowhead
MOST_LETTERS = 62  # maximum length of a claim's label
ROW_INCHES = 0.21
PANEL_INCHES = 0.55  # height of a panel's title and axis, without its rows
LEGEND_INCHES = 0.4


@dataclass(frozen=True)
class Effect:
    """A claim's effect on held-out scores, its 95% interval, its threshold and the verdict."""

    claim: str
    mean: float
    low: float
    high: float
    threshold: float
    verdict: str

    @classmethod
    def of(cls, row: Row) -> Self | None:
        """The effect in a row of a claims table.

        None for a row about a variant, a number that is not a score, or a single seed.
        """
        if "verdict" not in row or not row["number"].startswith(SCORES):
            return None
        interval = INTERVAL.fullmatch(row["mean [95%]"])
        if interval is None:
            return None
        mean, low, high = map(float, interval.groups())
        threshold = float(row["threshold"].split()[-1])
        return cls(row["claim"], mean, low, high, threshold, row["verdict"])


def read_effects(folder: Path) -> dict[str, list[Effect]]:
    """The effects in the claims tables of a folder, by study; studies without any are left out."""
    studies = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if effects := [effect for effect in map(Effect.of, rows) if effect]:
            studies[path.name.removesuffix(SUFFIX)] = effects
    return studies


def draw_claims(studies: Mapping[str, Sequence[Effect]], path: Path) -> None:
    """Draw at least one study as a PNG file: one panel per study, one row per claim.

    A dot is the mean over seeds, a line its interval, a tick the threshold. An interval that
    extends beyond the figure ends in an arrowhead.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = list(_columns(studies))
    heights = [
        sum(PANEL_INCHES + ROW_INCHES * len(studies[name]) for name in column) for column in columns
    ]
    figure = Figure(
        figsize=(8.4 * len(columns), LEGEND_INCHES + max(heights)), layout="constrained", dpi=80
    )
    figure.legend(
        handles=[
            Line2D([], [], color=COLOURS[verdict], marker="o", label=verdict) for verdict in COLOURS
        ],
        loc="outside upper center",
        ncols=len(COLOURS),
        frameon=False,
    )
    parts = figure.subfigures(1, len(columns), squeeze=False)[0]
    for part, names in zip(parts, columns, strict=True):
        sizes = [PANEL_INCHES + ROW_INCHES * len(studies[name]) for name in names]
        panels = part.subplots(len(names), 1, squeeze=False, height_ratios=sizes)
        for axes, name in zip(panels[:, 0], names, strict=True):
            _paint(axes, name, studies[name])
    FigureCanvasAgg(figure).print_png(str(path))


def _columns(studies: Mapping[str, Sequence[Effect]]) -> Iterator[list[str]]:
    """The names of the studies, in order, in at most two columns of similar height."""
    total = sum(map(len, studies.values()))
    first: list[str] = []
    taken = 0
    for name, effects in studies.items():
        if 2 * taken >= total:
            break
        first.append(name)
        taken += len(effects)
    yield first
    if rest := list(studies)[len(first) :]:
        yield rest


def ends_beyond(effect: Effect) -> Iterator[tuple[float, str]]:
    """The edges of the figure that an effect's interval extends beyond, each with its arrowhead."""
    lowest, highest = SHOWN_EFFECTS
    if effect.low < lowest:
        yield lowest, "<"
    if effect.high > highest:
        yield highest, ">"


def _paint(axes: Any, name: str, effects: Sequence[Effect]) -> None:
    for row, effect in enumerate(effects):
        colour = COLOURS[effect.verdict]
        axes.plot([effect.low, effect.high], [row, row], color=colour, linewidth=1.6)
        axes.plot([effect.mean], [row], marker="o", markersize=4, color=colour)
        axes.plot([effect.threshold], [row], marker="|", markersize=9, color="black")
        for end, marker in ends_beyond(effect):
            axes.plot([end], [row], marker=marker, markersize=5, color=colour, clip_on=False)
    claims = [shorten(effect.claim, MOST_LETTERS, placeholder=" …") for effect in effects]
    axes.set_yticks(range(len(effects)), claims, fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylim(len(effects) - 0.5, -0.5)
    axes.set_xlim(*SHOWN_EFFECTS)
    axes.axvline(0.0, color=GREY, linewidth=0.6)
    axes.set_title(name, loc="left", fontsize=9)
