"""Lines that fit the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

WIDTH = 100  # of prose, where there is no terminal


def width() -> int:
    """The columns of the terminal, or WIDTH where there is none."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return WIDTH


def print_wrapped(mark: str, text: str) -> None:
    """Print prose behind a mark, wrapped at words; further lines are indented below the first."""
    lines = textwrap.wrap(
        text,
        width=max(20, width() - 1),
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
    )
    click.echo("\n".join(lines))
