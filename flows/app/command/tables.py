"""Print rows for people to read."""

from __future__ import annotations

import sys
from typing import Any

import click

from flows.app.command.screen import print_wrapped
from flows.runtime.store_root import check_store, store_root

PIPE_WIDTH = 2000
NAME_WIDTH = 100  # longer values are prose, not names
PROSE_WIDTH = 12  # minimum width of a column of prose
# text from documents must not control the terminal
VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
VISIBLE |= dict.fromkeys((*range(127, 160), *range(8234, 8239), *range(8294, 8298)), 65533)


def visible(text: str) -> str:
    """The text with control characters escaped.

    >>> visible("\x1b[2J")
    '␛[2J'
    """
    return text.translate(VISIBLE)


def print_reports(name: str) -> None:
    """Print the paths of a run's reports. Raises ValueError if it has none."""
    check_store()
    pages = sorted((store_root() / "reports" / name).glob("iter-*.html"))
    if not pages:
        raise ValueError(
            f"there is no report of a run {name!r}, or none yet; `selfplay status` lists the runs"
        )
    for path in pages:
        click.echo(f"report: {path}")


def is_too_wide(rows: list[dict[str, Any]]) -> bool:
    """Whether a table of these rows, without cutting or wrapping, is wider than the terminal."""
    from rich.cells import cell_len
    from rich.console import Console

    if not rows or not sys.stdout.isatty():
        return False
    columns = [[str(name), *(_shown(row[name]) for row in rows)] for name in rows[0]]
    widths = (max(map(cell_len, column)) for column in columns)
    return sum(width + 3 for width in widths) + 1 > Console().width


def print_records(rows: list[dict[str, Any]]) -> None:
    """Print each row as lines `column  value`, for rows that are too wide for a table."""
    longest = max(len(str(name)) for name in rows[0])
    for number, row in enumerate(rows, start=1):
        click.echo(f"── {number}")
        for name, value in row.items():
            print_wrapped(f"{name:<{longest}}  ", _shown(value))


def print_list(rows: list[dict[str, Any]], title: str) -> None:
    """Print rows as a table or, if that is too wide, each as a paragraph that begins with the
    values of its first two columns."""
    if not is_too_wide(rows):
        print_table(rows, title)
        return
    click.echo(title)
    for row in rows:
        (_, name), (_, text), *others = row.items()
        print_wrapped("", f"{_shown(name)}: {_shown(text)}")
        known = [f"{key} {_shown(value)}" for key, value in others if value not in (None, "")]
        print_wrapped("    ", "; ".join(known))


def _shown(value: Any) -> str:
    return "" if value is None else visible(str(value))


def print_table(rows: list[dict[str, Any]], title: str | None = None) -> None:
    """Print rows without cutting anything off.

    On a terminal, prose is wrapped to fit; names and numbers stay in one piece. If the table is too
    wide, columns that are 0 in every row are only named; if it still does not fit, each row becomes
    a paragraph that begins with its first value.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        click.echo(f"{title}: none" if title else "no rows")
        return
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    if title:
        # rich would wrap a table's own title at the width of a narrow table
        console.print(Text(title, style="italic"))
    if _least_width(rows) > console.width:
        rows, zeros = _without_zeros(rows)
        if zeros:
            print_wrapped("", f"0 in every row: {', '.join(zeros)}")
    if _least_width(rows) > console.width:
        _print_paragraphs(rows)
        return
    cells = [[_shown(value) for value in row.values()] for row in rows]
    table = Table(header_style="bold")
    for column in zip(map(str, rows[0]), *cells, strict=True):
        table.add_column(column[0], no_wrap=_is_name(column), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _least_width(rows: list[dict[str, Any]]) -> int:
    """The width that a table with a frame needs if its prose is wrapped as far as possible."""
    from rich.cells import cell_len

    cells = [[_shown(value) for value in row.values()] for row in rows]
    least = 1
    for column in zip(map(str, rows[0]), *cells, strict=True):
        widest = max(map(cell_len, column))
        least += 3 + (widest if _is_name(column) else min(widest, PROSE_WIDTH))
    return least


def _is_name(column: tuple[str, ...]) -> bool:
    """Whether a column holds names or numbers, which stay in one piece, rather than prose."""
    from rich.cells import cell_len

    return max(map(cell_len, column)) <= NAME_WIDTH and not any(" " in cell for cell in column)


def _without_zeros(rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows without columns that are 0 or empty in every row, and the names of these columns.

    >>> _without_zeros([{"stage": "ask", "tokens": 5, "hours": "0.000"}])
    ([{'stage': 'ask', 'tokens': 5}], ['hours'])
    """
    zeros = [name for name in rows[0] if all(_is_zero(row[name]) for row in rows)]
    kept = [{key: value for key, value in row.items() if key not in zeros} for row in rows]
    return kept, zeros


def _is_zero(value: Any) -> bool:
    """Whether a cell shows 0, or nothing."""
    return not _shown(value).strip("0.")


def _print_paragraphs(rows: list[dict[str, Any]]) -> None:
    """Print each row as its first value, with its other columns below."""
    for row in rows:
        (_, name), *others = row.items()
        print_wrapped("", _shown(name))
        known = [f"{key} {_shown(value)}" for key, value in others if value not in (None, "")]
        print_wrapped("    ", "; ".join(known))
