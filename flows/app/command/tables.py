"""Print rows for people to read."""

from __future__ import annotations

import sys
from typing import Any

import click

from flows.app.command.screen import print_wrapped
from flows.runtime.store_root import check_store, store_root

PIPE_WIDTH = 2000
NAME_WIDTH = 100  # longer values are prose, not names
PROSE_WIDTH = 12  # least width of a column of prose
# Documents must not control the terminal.
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
    """Whether a table of these rows, uncut and unwrapped, is wider than the terminal."""
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
    """Print rows, and cut nothing off.

    On a terminal, prose is wrapped to fit; names and numbers stay in one piece. If these do not
    fit, there is no frame, and the terminal wraps whole lines.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        click.echo(f"{title}: none" if title else "no rows")
        return
    cells = [[_shown(value) for value in row.values()] for row in rows]
    table = Table(header_style="bold")
    least = 1
    for column in zip(map(str, rows[0]), *cells, strict=True):
        widest = max(map(cell_len, column))
        is_name = widest <= NAME_WIDTH and not any(" " in cell for cell in column)
        table.add_column(column[0], no_wrap=is_name, overflow="fold")
        least += 3 + (widest if is_name else min(widest, PROSE_WIDTH))
    for row in cells:
        table.add_row(*map(Text, row))
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    if title:
        # the table's own title would wrap at the width of a narrow table
        console.print(Text(title, style="italic"))
    if least > console.width:
        table.box = None
        console.width = max(console.width, least - len(table.columns) - 1)
    console.print(table)
