"""`selfplay diff`: the first table at which two runs differ, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from flows.app.command.screen import print_prose
from flows.app.command.tables import print_table
from flows.runtime.store_root import existing_store

if TYPE_CHECKING:
    from warehouse.schemas import Row

LONGEST = 200  # maximum number of characters of a value that are shown
BEFORE = 40  # number of characters shown before the first difference


@click.command()
@click.argument("one", metavar="RUN")
@click.argument("other", metavar="OTHER")
def diff(one: str, other: str) -> None:
    """Find the first table at which RUN and OTHER differ, and say why.

    Compares their tables in the order in which RUN made them. If a recipe differs, names each
    setting, prompt, SQL file, function or input that does. If the recipe is the same, as when
    replies were sampled again, shows the first row that differs. Sampling seeds and the runs' names
    within ids are ignored.
    """
    from warehouse.difference import first_difference

    if one == other:
        raise ValueError(f"{one!r} is compared with itself: name two runs")
    difference, num_equal = first_difference(existing_store(), one, other)
    if difference is None:
        click.echo(f"{one} and {other} are the same: all {num_equal} tables are equal")
        return
    print_prose(
        f"equal: the first {num_equal} tables that {one} made; then {difference.place} differs"
    )
    if difference.parts:
        rows = [
            {"what": row["what"], "name": row["name"], **_beside(row, one, other)}
            for row in difference.parts
        ]
        print_table(rows, "its recipe")
    else:
        rows = [{"column": row["column"], **_beside(row, one, other)} for row in difference.columns]
        print_table(
            rows, f"its recipe is the same; its first row that differs is row {difference.row}"
        )


def _beside(row: Row, one: str, other: str) -> Row:
    """Both values side by side; long ones are cut around the first difference."""
    values = (_text(row["one"]), _text(row["other"]))
    start = max(0, _num_common(*values) - BEFORE)
    return dict(zip((one, other), (_cut(value, start) for value in values), strict=True))


def _text(value: Any) -> str:
    return " ".join(str(value).split())


def _num_common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _cut(value: str, start: int) -> str:
    if len(value) <= LONGEST:
        return value
    begin = "..." if start else ""
    end = "..." if len(value) > start + LONGEST else ""
    return f"{begin}{value[start : start + LONGEST]}{end}"
