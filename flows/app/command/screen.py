"""Print lines that fit the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap

import click

WIDTH = 100  # width of prose without a terminal


def width() -> int:
    """The width of the terminal in columns; WIDTH without a terminal."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    return WIDTH


class Failure(click.ClickException):
    """An expected failure; its message is wrapped at words when shown to people."""

    def format_message(self) -> str:
        if not sys.stderr.isatty():
            return self.message
        columns = shutil.get_terminal_size().columns - len("Error: ")
        lines = self.message.splitlines()
        return "\n".join(
            textwrap.fill(line, max(20, columns), break_on_hyphens=False, break_long_words=False)
            for line in lines
        )


def print_wrapped(mark: str, text: str) -> None:
    """Print prose after a mark, wrapped at words; further lines are indented to align with the
    first."""
    lines = textwrap.wrap(
        text,
        width=max(20, width() - 1),
        initial_indent=mark,
        subsequent_indent=" " * len(mark),
        break_on_hyphens=False,
    )
    click.echo("\n".join(lines))


def print_prose(text: str) -> None:
    """Print a sentence or two: wrapped at words on a terminal, else as one line."""
    if sys.stdout.isatty():
        print_wrapped("", text)
    else:
        click.echo(text)
