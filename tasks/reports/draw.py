"""Draw a figure as inline SVG that takes its text colour from the page, so that it reads on light and dark."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from tasks.reports.unseen import visible
from warehouse.schemas import Row

INK = "#010203"  # stands for the page's text colour in the drawing
PALETTE = ("#3f83d6", "#e2832f", "#2fa57c", "#a06ad0", "#d8506f", "#8f9a2b", "#2ea3b5", "#b07a50")
GREY = "#8b929c"
WIDTH_IN = 5.0  # 360 points: text keeps its size on a phone

STYLE: dict[Any, Any] = {
    "font.size": 11.0,
    "text.parse_math": False,  # labels come from data
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "grid.color": INK,
    "grid.alpha": 0.12,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "legend.columnspacing": 1.2,
    "legend.handlelength": 1.4,
    "legend.borderpad": 0.1,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "report",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Plot:
    """The finding as title, the figure, and how to read it. Without data there is no figure, and the title says so."""

    name: str
    title: str
    note: str
    svg: Markup | None = None


class Colours:
    """One colour per name, the same in all figures of a report."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._of: dict[str, str] = {}
        for name in names:
            self[name]

    def __getitem__(self, name: str) -> str:
        return self._of.setdefault(name, PALETTE[len(self._of) % len(PALETTE)])


def draw(paint: Callable[..., None], *args: Any, rows: int = 1, columns: int = 1, height_in: float = 2.9) -> Markup:
    """`paint(axes, *args)` as SVG; `axes` is a list when there is more than one.

    Safe in a page: matplotlib escapes what it writes, and the drawing holds no script and no link.
    """
    import matplotlib

    with matplotlib.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        axes = [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
        paint(axes[0] if len(axes) == 1 else axes, *args)
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inline(buffer.getvalue())


def _inline(svg: str) -> Markup:
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return Markup(visible(svg))  # labels may be names from data


def progress(rows: Iterable[Row]) -> list[float]:
    """The x of each row: step k of K in iteration t lies at t - 1 + (k - 1/2) / K; a row without a step lies at t.

    >>> progress([{"iteration": 2, "step": 1}, {"iteration": 2, "step": 2}, {"iteration": 3, "step": None}])
    [1.25, 1.75, 3]
    """
    rows = list(rows)
    last = {t: max(row["step"] or 1 for row in found) for t, found in by(rows, "iteration").items()}
    return [
        row["iteration"] if row["step"] is None else row["iteration"] - 1 + (row["step"] - 0.5) / last[row["iteration"]]
        for row in rows
    ]


def iteration_axis(axes: Any, rows: list[Row]) -> None:
    """Whole iterations on the x axis, a line at each."""
    last = max(r["iteration"] for r in rows)
    axes.set_xlim(0, last)
    axes.set_xticks(range(last + 1))


def by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows under the value of a column, or the tuple of several, in order of first appearance."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[names[0]] if len(names) == 1 else tuple(row[name] for name in names), []).append(row)
    return found


def short(text: str, limit: int = 34) -> str:
    """
    >>> short("another task of its document is kept", 20)
    'another task of its…'
    """
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def percent(part: float, whole: float) -> str:
    """A share in percent, with more digits near 0 and 100.

    >>> percent(1, 3), percent(1, 32), percent(999, 1000), percent(0, 4), percent(0, 0)
    ('33 %', '3.1 %', '99.9 %', '0 %', 'none')
    """
    if not whole:
        return "none"
    share = 100 * part / whole
    if 0 < share < 1:
        return f"{share:.2g} %"
    return f"{share:.1f} %" if share % 100 and not 10 <= share <= 90 else f"{share:.0f} %"


def legend(panels: Any, columns: int = 3, where: str = "upper") -> None:
    """A legend for the lines or bars of one or several axes, outside, where it hides nothing. A name that several axes
    have is shown once. With names too wide for so many columns it gets fewer, and the figure grows by the lines that
    this adds."""
    panels = panels if isinstance(panels, list) else [panels]
    handles, names = [], []
    for panel in panels:
        new = [(handle, n) for handle, n in zip(*panel.get_legend_handles_labels(), strict=True) if n not in names]
        handles += [handle for handle, _ in new]
        names += [name for _, name in new]  # within one panel, two names that `short` made equal stay two
    fitting = max((n for n in range(1, columns + 1) if _legend_width(names, n) <= 72 * WIDTH_IN), default=1)
    added = math.ceil(len(names) / fitting) - math.ceil(len(names) / columns)
    figure = panels[0].figure
    figure.set_figheight(figure.get_figheight() + 0.2 * added)
    figure.legend(handles, names, loc=f"outside {where} left", ncols=fitting)


def _legend_width(names: list[str], columns: int) -> float:
    """Points, at 6 a letter, with 36 for a handle and its spaces. Names fill one column after another.

    >>> _legend_width(["a" * 10, "b" * 20, "c" * 5], 2)  # the columns are 20 and 5 letters wide
    222
    """
    lines = math.ceil(len(names) / columns)
    return sum(36 + 6 * max(map(len, names[i : i + lines])) for i in range(0, len(names), lines)) if names else 0
