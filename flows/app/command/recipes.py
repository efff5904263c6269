"""`selfplay corpus recipes` and `fetch`: get the papers' data from where it is published."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.app.command.tables import print_table

if TYPE_CHECKING:
    from flows.blocks.recipes.recipe import Recipe
    from warehouse.schemas import Row

GB = 1e9
DOWNLOADS = Path("data/downloads")


@click.command()
def recipes() -> None:
    """List the recipes of the papers' corpora and questions."""
    from flows.blocks.recipes.recipe import find_recipe, names

    listed = [find_recipe(name) for name in names()]
    rows = [
        {
            "recipe": each.name,
            "paper": each.paper,
            "makes": each.makes,
            "what": each.title,
            "licence": each.licence,
        }
        for each in listed
    ]
    print_table(rows, "selfplay corpus fetch RECIPE --dry-run says what it takes")


@click.command()
@click.argument("name", metavar="RECIPE")
@click.option(
    "--from",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with the source's files, used instead of the network.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write.  [data/corpus/RECIPE/documents.parquet or data/questions/RECIPE.jsonl]",
)
@click.option("--dry-run", is_flag=True, help="Print what it would take, and do nothing.")
@click.option("--revision", help="Another commit of the source.")
@click.option(
    "--take",
    type=click.IntRange(1),
    metavar="N",
    help="Use only N rows of the source: the first N, or N drawn ones if the recipe draws.",
)
@click.option(
    "--gated",
    is_flag=True,
    help="Confirm that you have accepted the source's terms on the hub and are logged in.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Also keep questions that benchmarks evaluate."
)
@click.option("--tokenizer", help="What measures contexts: a model's folder or owner/name@commit.")
@click.option(
    "--pages",
    type=click.Path(exists=True, path_type=Path),
    help="Texts of the pages that questions link to: a WARC, or rows with url and text.",
)
@click.option(
    "--page-reader",
    metavar="ADDRESS",
    help="Fetch these pages through a service that answers ADDRESS + page, such as"
    " https://r.jina.ai/; they are saved beside --out, in pages.jsonl.",
)
@click.option("--seed", type=int, default=0, show_default=True)
def fetch(  # noqa: PLR0913 -- one argument for each option
    name: str,
    folder: Path | None,
    out: Path | None,
    dry_run: bool,
    revision: str | None,
    take: int | None,
    gated: bool,
    everything: bool,
    tokenizer: str | None,
    pages: Path | None,
    page_reader: str | None,
    seed: int,
) -> None:
    """Download the data of RECIPE at its pinned commit, and write documents or questions.

    Prints the command that uses them. Files are checked against the recipe's hashes.
    """
    from flows.blocks.recipes.pages import saved_pages
    from flows.blocks.recipes.readers import Reading
    from flows.blocks.recipes.recipe import find_recipe, make

    recipe = find_recipe(name)
    if revision:
        recipe = recipe.model_copy(update={"revision": revision})
    if take:
        recipe = recipe.model_copy(update={"draw" if recipe.draw else "take": take})
    out = out or recipe.default_out
    if dry_run:
        _show(recipe, out)
        return
    if recipe.needs_tokenizer and not tokenizer:
        raise ValueError(f"{name} pads contexts to a number of tokens: --tokenizer MODEL")
    if recipe.needs_pages and not (pages or page_reader):
        raise ValueError(
            f"{name} links to pages, whose texts it does not hold: --pages FILE, a WARC of them or"
            " rows with url and text; or --page-reader ADDRESS"
        )
    if out.exists():
        raise ValueError(f"{out} exists: remove it, or name another file by --out")
    if folder is None:
        _check_space(recipe, out)
    count = None
    if tokenizer:
        from tasks.rollouts.tokens import count_tokens

        count = functools.partial(count_tokens, model=tokenizer)
    rows: Iterator[Row] = recipe.rows_of(folder, DOWNLOADS, gated)
    if recipe.needs_pages and page_reader:
        listed = list(rows)
        rows = iter(listed)
        pages = out.with_name("pages.jsonl")
        _read_pages(listed, recipe, page_reader, pages)
    reading = Reading(
        text=recipe.text,
        source=recipe.source,
        seed=seed,
        draw=recipe.draw,
        everything=everything,
        count=count,
        pages=saved_pages(pages) if pages else {},
        columns=recipe.columns,
    )
    counted = _RowCounter(rows)
    made = make(recipe, counted, reading, out)
    click.echo(f"{made.path}: {made.num_rows:,} {recipe.makes} of {counted.num_rows:,} rows")
    if recipe.rows and recipe.take is None and counted.num_rows != recipe.rows:
        click.echo(
            f"The recipe expects {recipe.rows:,} rows: compare revision and files.", err=True
        )
    _show_rest(recipe)


class _RowCounter:
    """An iterator that counts the rows it has yielded."""

    def __init__(self, rows: object) -> None:
        self._rows = iter(rows)  # type: ignore[call-overload]
        self.num_rows = 0

    def __iter__(self) -> _RowCounter:
        return self

    def __next__(self) -> dict:
        row = next(self._rows)
        self.num_rows += 1
        return row


def _read_pages(rows: list[Row], recipe: Recipe, service: str, into: Path) -> None:
    from flows.blocks.recipes.pages import read_pages
    from flows.blocks.recipes.readers import addresses_of

    column = recipe.columns["pages"]
    addresses = [address for row in rows for address in addresses_of(row, column)]
    failures = read_pages(addresses, service, into)
    for address, why in failures.items():
        click.echo(f"{address} cannot be read: {why}", err=True)
    if failures:
        click.echo(
            f"{len(failures)} pages are missing: remove {into} and repeat the command to fetch them"
            " again"
        )


def _show(recipe: Recipe, out: Path) -> None:
    parts = [
        {"part": row["part"], "GB": _gigabytes(row["bytes"])}
        for row in recipe.needed()
        if not row["part"].startswith("write")
    ]
    parts.append({"part": f"write {out}, about", "GB": _gigabytes(recipe.written_bytes)})
    print_table(parts, f"{recipe.name}: {recipe.title}")
    click.echo(f"source: {recipe.repository} at {recipe.revision or 'no pinned revision'}")
    click.echo(f"licence: {recipe.licence}{'; gated' if recipe.gated else ''}")
    if recipe.rows:
        click.echo(f"rows: {recipe.rows:,}")
    if recipe.take:
        click.echo(f"taken: the first {recipe.take:,}")
    if recipe.draw:
        click.echo(f"drawn: {recipe.draw:,}")
    free = shutil.disk_usage(_existing(out)).free
    click.echo(f"free on this disk: {_gigabytes(free)} GB")
    _show_rest(recipe)


def _show_rest(recipe: Recipe) -> None:
    for difference in recipe.differs:
        click.echo(f"differs from the paper: {difference}")
    click.echo(f"then: {recipe.then}")


def _check_space(recipe: Recipe, out: Path) -> None:
    """Raise ValueError if the known size of the output does not fit on the disk."""
    needed = recipe.written_bytes + sum(each.bytes or 0 for each in recipe.files)
    free = shutil.disk_usage(_existing(out)).free
    if needed > free:
        raise ValueError(
            f"{recipe.name} takes {_gigabytes(needed)} GB, and {_gigabytes(free)} GB are free at"
            f" {_existing(out)}"
        )


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _gigabytes(number: int | None) -> str:
    if number is None:
        return "unknown"
    return f"{number / GB:,.3g}"
