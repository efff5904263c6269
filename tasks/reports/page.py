"""A page for people: sections of figures under headline numbers, in one self-contained file."""

from __future__ import annotations

import json
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from tasks.reports.draw import Plot, by
from tasks.reports.percent import percent
from tasks.reports.unseen import visible
from warehouse.store import Store

VIEWER_PORT = 4218  # the port of `selfplay view`, unless it is taken
VIEWER = "viewer.json"
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """Figures under a title; a folded section is shown only when opened."""

    title: str
    plots: list[Plot]
    folded: bool = False


def render(template: str, **values: Any) -> str:
    """Render a template of this folder.

    HTML escapes everything except figures; in Markdown the filter `cell` escapes. In both,
    invisible characters are written as their escapes.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=template.endswith(".html.jinja"),
        undefined=jinja2.StrictUndefined,
        finalize=_visible_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cell": cell,
        "by": by,
        "number": number,
        "percent": percent,
        "cut": cut,
    }
    environment.globals["longest"] = None
    environment.globals["viewer"] = ""
    return environment.get_template(template).render(values)


def _visible_text(value: Any) -> Any:
    """Make a text's invisible characters visible; figures and macros, which are Markup, stay."""
    if type(value) is str:
        return visible(value)
    return value


def cell(value: Any) -> str:
    r"""A text for Markdown and its tables, without markup, line breaks or new columns. Numeric
    entities are not used, because Prefect's page does not read them.

    >>> print(cell("a|b <img src=x>\n*c*"))
    a\|b \<img src=x\> \*c\*
    """
    return re.sub(r"[&<>|*_`\[\]#~!\\]", r"\\\g<0>", re.sub(r"\s+", " ", str(value)))


def cut(text: str, longest: int | None) -> str:
    """The first `longest` characters of a text, and how many more it has; None cuts nothing.

    >>> cut("abcdef", 2), cut("abcdef", None)
    ('ab… 4 more characters', 'abcdef')
    """
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}… {len(text) - longest:,} more characters"


def number(value: float | None, digits: int = 3) -> str:
    """A number as text: whole numbers from 2 on have no decimals; a dash for None.

    >>> number(0.12345), number(12.0), number(None)
    ('0.123', '12', '–')
    """
    if value is None:
        return "–"
    if float(value).is_integer() and abs(value) >= 2:
        return f"{value:,.0f}"
    return f"{value:.{digits}f}"


def viewer_file(store: Store) -> Path:
    """The file in which a store's viewer keeps its port and token between starts."""
    return store.root / VIEWER


def viewer_port(store: Store) -> int:
    """The port that the store's viewer had last, or will try first."""
    try:
        return int(json.loads(viewer_file(store).read_text(encoding="utf-8"))["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return VIEWER_PORT


def viewer_page(store: Store, run: str) -> str:
    """The URL at which the viewer shows a run."""
    return f"http://127.0.0.1:{viewer_port(store)}/run/{quote(run, safe='')}"


def report_file(store: Store, run: str, iteration: int | None = None) -> Path:
    """The path of a run's report up to an iteration, or of the latest one."""
    name = "latest" if iteration is None else f"iter-{iteration:03d}"
    return store.root / "reports" / run / f"{name}.html"


def write_page(store: Store, name: str, text: str) -> Path:
    """Write a file under `reports/`, whole or not at all."""
    path = store.root / "reports" / name
    fresh = store.root / "tmp" / uuid.uuid4().hex
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
    return path
