"""Text for a page: text of a document or a model, escaped, and truncated if very long."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any

from markupsafe import Markup, escape

from tasks.reports.duration import duration
from tasks.reports.percent import percent
from tasks.reports.unseen import UNSEEN

CUT = 20_000  # maximum number of characters shown of one text


def shown(text: Any, whole: str = "", cut: int = CUT) -> Markup:
    """Escaped text that shows invisible characters by their code points.

    It is cut after `cut` characters, with a link to `whole` if that is given.

    >>> shown("a\u202eb <b>")
    Markup('a<span class="unseen">U+202E</span>b &lt;b&gt;')
    """
    if text is None:
        return Markup('<span class="none">none</span>')
    text = str(text)
    pieces = Markup("").join(_pieces(text[:cut]))
    if len(text) <= cut:
        return pieces
    more = f"{len(text) - cut:,} more characters"
    link = escape(more)
    if whole:
        link = Markup('<a href="{}" rel="nofollow">{}</a>').format(whole, more)
    return pieces + Markup('<span class="cut">… {}</span>').format(link)


def _pieces(text: str) -> list[Markup]:
    pieces = []
    at = 0
    for match in UNSEEN.finditer(text):
        named = Markup('<span class="unseen">U+{:04X}</span>').format(ord(match[0]))
        pieces += [escape(text[at : match.start()]), named]
        at = match.end()
    return [*pieces, escape(text[at:])]


def line(text: Any, cut: int = 160) -> Markup:
    """The beginning of a text, on one line.

    >>> line("two\\nlines")
    Markup('two lines')
    """
    if text is None:
        return shown(None)
    text = str(text)
    flat = re.sub(r"\s+", " ", text[: 2 * cut]).strip()
    beginning = shown(flat[:cut])
    if len(flat) > cut or len(text) > 2 * cut:
        beginning += "…"
    return beginning


def number(value: Any, digits: int = 3) -> str:
    """A number with thousands separators and at most `digits` decimals; a dash for None; any other
    value unchanged.

    >>> number(0.12345), number(12345), number(None), number(1.0), number(0.00001234)
    ('0.123', '12,345', '–', '1', '1.23e-05')
    """
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    if math.isnan(value) or abs(value) < 10**-digits or abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.{digits}f}"


def plain(value: float) -> str:
    """A number of a result, with at most six decimals and no separators.

    >>> plain(0.1 + 0.2), plain(1234567), plain(1e-9), plain(float("nan"))
    ('0.3', '1234567', '1e-09', 'nan')
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    if value and abs(value) < 1e-4:
        return f"{value:.6g}"
    return f"{round(value, 6):.15g}"


def time_taken(seconds: float | None) -> str:
    """Seconds in the two largest units; a dash for None."""
    return "–" if seconds is None else duration(seconds)


def counted(how_many: int, thing: str) -> str:
    """A count with its noun, in the plural if needed.

    >>> counted(1, "row"), counted(2300, "row")
    ('1 row', '2,300 rows')
    """
    ending = "" if how_many == 1 else "s"
    return f"{how_many:,} {thing}{ending}"


def moment(at: float | None) -> str:
    """A time, given in seconds since 1970, as local date, hour and minute; empty for None."""
    if at is None:
        return ""
    return time.strftime("%d %b %H:%M", time.localtime(at))


def size(num_bytes: float) -> str:
    """A number of bytes in decimal units.

    >>> size(999), size(2_500_000)
    ('999 B', '2.5 MB')
    """
    if num_bytes < 1000:
        return f"{num_bytes:.0f} B"
    for unit in ("kB", "MB", "GB"):
        num_bytes /= 1000
        if num_bytes < 1000:
            return f"{num_bytes:.1f} {unit}"
    return f"{num_bytes / 1000:.1f} TB"


def as_json(value: Any) -> str:
    """A value as JSON; types that JSON lacks become text."""
    return json.dumps(value, default=str, ensure_ascii=False)


FILTERS = {
    "shown": shown,
    "line": line,
    "number": number,
    "counted": counted,
    "plain": plain,
    "duration": time_taken,
    "moment": moment,
    "percent": percent,
    "size": size,
    "as_json": as_json,
}
