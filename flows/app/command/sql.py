"""`selfplay sql`: a query over the tables of all runs, as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from flows.app.command.tables import is_too_wide, print_records, print_table, visible
from flows.runtime.store_root import check_store, store_root

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("table", "csv", "json", "parquet")
TABLE_ROWS = 1000


class Sql(click.Command):
    """A command whose statement may begin with a comment.

    Otherwise click would take the comment's `--` for an option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [f"\n{arg}" if arg.startswith("-- ") else arg for arg in args]
        return super().parse_args(ctx, words)


@click.command(cls=Sql)
@click.argument("statement")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help=(
        "Output format.  [default: table on a terminal, csv in a pipe; with -o, the suffix of FILE]"
    ),
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to FILE.",
)
def sql(statement: str, form: str | None, output: Path | None) -> None:
    """Query the tables of all runs with one SQL SELECT. Nothing is written but the result.

    For instance: selfplay sql "select run, count(*) from rollouts group by run" -o counts.csv

    CSV, JSON and Parquet hold all rows and exact values; a table shows the first 1000 rows, and
    six digits of a number. Rows that are wider than the terminal are shown column by column.
    """
    from warehouse import readonly

    form = form or _default_format(output)
    if form == "parquet" and output is None and sys.stdout.isatty():
        raise ValueError("Parquet is not text: add -o FILE, or send the output into a file or pipe")
    check_store()
    with readonly.answer(store_root(), statement) as rows:
        if output is not None:
            _save(rows, form, output)
        elif form == "table":
            _show(rows)
        elif form == "parquet":
            _write(rows, form, sys.stdout.buffer)
        else:
            lines = _text(rows, form)
            if sys.stdout.isatty():
                lines = map(visible, lines)
            sys.stdout.writelines(lines)


def _default_format(output: Path | None) -> str:
    if output is None:
        if sys.stdout.isatty():
            return "table"
        return "csv"
    form = output.suffix.removeprefix(".").lower()
    if form not in FORMATS[1:]:
        raise ValueError(f"{output}: end the name in .csv, .json or .parquet, or choose a --format")
    return form


def _save(rows: pa.RecordBatchReader, form: str, output: Path) -> None:
    """Write the whole result or nothing: an existing file is replaced only at the end.

    If the path is a symbolic link, its target is replaced. Special files, such as pipes and
    devices, are written to directly.
    """
    target = output.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    is_special = target.exists() and not target.is_file() and not target.is_dir()
    try:
        with open(target if is_special else fresh, "wb") as file:
            _write(rows, form, file)
        if not is_special:
            fresh.replace(target)
    except OSError as problem:
        raise ValueError(f"{output} cannot be written: {problem.strerror or problem}") from problem
    finally:
        if not is_special:
            fresh.unlink(missing_ok=True)
    click.echo(f"wrote {output}", err=True)


def _write(rows: pa.RecordBatchReader, form: str, file: BinaryIO) -> None:
    from warehouse import export

    if form == "parquet":
        export.write_parquet(rows, file)
        return
    for line in _text(rows, form):
        file.write(line.encode())


def _text(rows: pa.RecordBatchReader, form: str) -> Iterable[str]:
    from warehouse import export

    if form == "table":
        raise ValueError("a table is for the terminal: save the result as csv, json or parquet")
    if form == "csv":
        return export.csv_lines(rows)
    return export.json_lines(rows)


def _rounded(value: Any) -> Any:
    """A number rounded to six significant digits; other formats have all digits."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _show(rows: pa.RecordBatchReader) -> None:
    from warehouse import export

    shown, more = export.first_rows(rows, TABLE_ROWS)
    rounded = [{name: _rounded(value) for name, value in row.items()} for row in shown]
    if is_too_wide(rounded):
        print_records(rounded)
    else:
        print_table(rounded)
    if more:
        click.echo(
            f"only the first {TABLE_ROWS} rows are shown: --format csv or -o FILE gives all",
            err=True,
        )
