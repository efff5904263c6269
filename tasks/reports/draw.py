"""Figures as inline SVG for reports and for the viewer.

Text takes the colour of the page, so figures are readable on light and dark pages.
"""

from __future__ import annotations

import html
import io
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from markupsafe import Markup

from tasks.reports.unseen import visible
from warehouse.schemas import Row

INK = "#010203"  # stands for the page's text colour in the drawing
PALETTE = ("#3f83d6", "#e2832f", "#2fa57c", "#a06ad0", "#d8506f", "#8f9a2b", "#2ea3b5", "#b07a50")
GREY = "#8b929c"
WIDTH_IN = 5.0  # 360 points: text keeps its size on a phone
LABEL = 300  # characters of a drawing's name
HOVER = "hover:"  # prefix of the address of a hover point in the drawing
HOVER_LINK = re.compile(rf'<a xlink:href="{HOVER}([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
PLACE = re.compile(r'<use [^>]*x="([^"]*)" y="([^"]*)"')
_drawing = threading.Lock()  # matplotlib's settings belong to the process

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
    """A figure with the finding as its title, and a note on how to read it.

    Without data there is no figure, and the title says so. `rows` is the page of the viewer that
    shows the rows from which it is drawn.
    """

    name: str
    title: str
    note: str
    svg: Markup | None = None
    rows: str = ""

    @property
    def drawing(self) -> Markup:
        """The drawing, labelled with its title for readers that do not see it. Its points are not
        in the tab order: tables have the same links."""
        if self.svg is None:
            return Markup("")
        named = Markup('<svg role="img" aria-label="{}" ').format(visible(short(self.title, LABEL)))
        return Markup(self.svg.replace("<svg ", named, 1))


class Colours:
    """One colour per name, the same in all figures of a report."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._of: dict[str, str] = {}
        for name in names:
            self[name]

    def __getitem__(self, name: str) -> str:
        return self._of.setdefault(name, PALETTE[len(self._of) % len(PALETTE)])


def draw(
    paint: Callable[..., None], *args: Any, rows: int = 1, columns: int = 1, height_in: float = 2.9
) -> Markup:
    """What `paint(axes, *args)` draws, as SVG; `axes` is a list if there are several.

    Safe in a page: matplotlib escapes what it writes, and the drawing has no scripts or links.
    """
    import matplotlib

    with _drawing, matplotlib.rc_context(STYLE):  # pyright: ignore[reportArgumentType]
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        axes = [figure.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
        paint(axes[0] if len(axes) == 1 else axes, *args)
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(
            buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    return _inline(buffer.getvalue())


def _inline(svg: str) -> Markup:
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # a style element would apply to the whole page
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("<svg ", '<svg style="stroke-linejoin: round; stroke-linecap: butt" ', 1)
    svg = HOVER_LINK.sub(_hover_point, svg)
    return Markup(visible(svg))  # labels may be names from data


def hover(
    axes: Any,
    x: Sequence[float],
    y: Sequence[float],
    texts: Sequence[str],
    links: Sequence[str] | None = None,
) -> None:
    """Lay an invisible point over each drawn one. It shows its text when the pointer rests on it,
    and leads to its link."""
    contents = zip(texts, links or [""] * len(texts), strict=True)
    addresses = [HOVER + quote(json.dumps(content)) for content in contents]
    axes.scatter(x, y, s=60, alpha=0, linewidth=0, urls=addresses, label="_hover")


def _hover_point(match: re.Match[str]) -> str:
    """matplotlib's link around an invisible point, as a circle with a title."""
    text, link = json.loads(unquote(html.unescape(match[1])))
    place = PLACE.search(match[2])
    if place is None:
        return ""
    circle = Markup('<circle cx="{}" cy="{}" r="4" fill-opacity="0"><title>{}</title></circle>')
    point = circle.format(place[1], place[2], text)
    if link:
        return Markup('<a href="{}" tabindex="-1">{}</a>').format(link, point)
    return point


def value_says(value: float, error: float | None = None) -> str:
    """A value as text, with its standard error if it has one.

    >>> value_says(0.5), value_says(0.5, 0.0312), value_says(1e-5)
    ('0.5', '0.5 ± 0.031', '1e-05')
    """
    spread = "" if error is None else f" ± {error:.2g}"
    return f"{value:.4g}{spread}"


def x_of_steps(rows: Iterable[Row]) -> list[float]:
    """The x of each row: the end of its step, if the row has a `span` of time.

    Otherwise step k of K in iteration t lies at t - 1 + (k - 1/2) / K. A row without a step lies
    at t.

    >>> steps = [{"iteration": 2, "step": 1}, {"iteration": 2, "step": 2}]
    >>> x_of_steps([*steps, {"iteration": 3, "step": None}])
    [1.25, 1.75, 3]
    """
    rows = list(rows)
    num_steps = {
        iteration: max(row["step"] or 1 for row in of_iteration)
        for iteration, of_iteration in by(rows, "iteration").items()
    }

    def place(row: Row) -> float:
        if "span" in row:
            return row["span"][1]
        if row["step"] is None:
            return row["iteration"]
        return row["iteration"] - 1 + (row["step"] - 0.5) / num_steps[row["iteration"]]

    return [place(row) for row in rows]


def gapped(
    rows: Sequence[Row], x: Sequence[float], y: Sequence[float]
) -> tuple[list[float], list[float]]:
    """The points of a line with gaps between iterations, in which other phases worked; without gaps
    if every iteration has a single point.

    >>> steps = [{"iteration": 1}, {"iteration": 1}, {"iteration": 2}]
    >>> gapped(steps, [0.5, 1.0, 2.0], [7.0, 8.0, 9.0])
    ([0.5, 1.0, nan, 2.0], [7.0, 8.0, nan, 9.0])
    """
    is_interrupted = len(rows) > len({row["iteration"] for row in rows})
    line_x: list[float] = []
    line_y: list[float] = []
    for i, row in enumerate(rows):
        if i and is_interrupted and row["iteration"] != rows[i - 1]["iteration"]:
            line_x.append(math.nan)
            line_y.append(math.nan)
        line_x.append(x[i])
        line_y.append(y[i])
    return line_x, line_y


def iteration_axis(axes: Any, rows: list[Row]) -> None:
    """Whole iterations on the x axis, a line at each."""
    last = max(r["iteration"] for r in rows)
    axes.set_xlim(0, last)
    axes.set_xticks(range(last + 1))


def by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Rows by the value of a column, or by the tuple of several, in order of first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        values = tuple(row[name] for name in names)
        key = values[0] if len(values) == 1 else values
        groups.setdefault(key, []).append(row)
    return groups


def short(text: str, limit: int = 34) -> str:
    """A text of at most `limit` characters; an ellipsis replaces its end.

    >>> short("another task of its document is kept", 20)
    'another task of its…'
    """
    if len(text) <= limit:
        return text
    return text[: limit - 1].rstrip() + "…"


def legend(panels: Any, columns: int = 3, where: str = "upper") -> None:
    """Add a legend for one or several axes, outside of them, where it hides nothing.

    A name that several axes have is shown once. If the names are too wide for `columns`, the legend
    has fewer columns, and the figure grows by the lines that this adds.
    """
    if not isinstance(panels, list):
        panels = [panels]
    handles = []
    names = []
    for panel in panels:
        labelled = zip(*panel.get_legend_handles_labels(), strict=True)
        # within a panel, two names that `short` made equal stay separate
        new = [(handle, name) for handle, name in labelled if name not in names]
        handles += [handle for handle, _ in new]
        names += [name for _, name in new]
    fitting = 1
    for num_columns in range(2, columns + 1):
        if _legend_width(names, num_columns) <= 72 * WIDTH_IN:
            fitting = num_columns
    added = math.ceil(len(names) / fitting) - math.ceil(len(names) / columns)
    figure = panels[0].figure
    figure.set_figheight(figure.get_figheight() + 0.2 * added)
    figure.legend(handles, names, loc=f"outside {where} left", ncols=fitting)


def _legend_width(names: list[str], columns: int) -> float:
    """The width in points, at 6 per letter and 36 for a handle and its spaces.

    Names fill one column after another.

    >>> _legend_width(["a" * 10, "b" * 20, "c" * 5], 2)  # the columns are 20 and 5 letters wide
    222
    """
    if not names:
        return 0
    num_lines = math.ceil(len(names) / columns)
    filled = [names[i : i + num_lines] for i in range(0, len(names), num_lines)]
    return sum(36 + 6 * max(map(len, column)) for column in filled)
