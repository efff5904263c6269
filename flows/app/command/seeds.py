"""`selfplay seeds`: draw a run's initial questions from several data sets."""

from __future__ import annotations

import json
from pathlib import Path

import click

from flows.app.command.tables import print_table


@click.command()
@click.argument(
    "sources", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="SOURCES.toml"
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="JSON Lines file to write.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("data/seeds"),
    show_default=True,
    help="Folder with copies of the sources.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the draws.")
@click.option(
    "--gated", is_flag=True, help="Confirm that you accepted the terms of gated data sets."
)
@click.option(
    "--partial", is_flag=True, help="Write the questions even if some sources are missing."
)
def seeds(sources: Path, out: Path, folder: Path, seed: int, gated: bool, partial: bool) -> None:
    """Draw questions from the sources listed in a file such as flows/mae/seeds.toml.

    Known answers are included. A source is read from FOLDER/NAME.jsonl (.parquet, .csv, .json) if
    it exists, else from the hub at its pinned revision. Nothing is drawn from a split that is
    evaluated.
    """
    from flows.app.seeds import draw, read_sources

    drawn = [draw(source, folder, seed, gated) for source in read_sources(sources)]
    summary = [
        {
            "source": one.source.name,
            "questions": f"{len(one.questions)} of {one.source.count}",
            "licence": one.source.licence,
            "problem": one.problem or "",
        }
        for one in drawn
    ]
    print_table(summary, "sources")
    missing = [one.source.name for one in drawn if one.problem]
    if missing and not partial:
        raise click.ClickException(
            f"nothing was written: no questions can be drawn from {', '.join(missing)}"
            " (--partial writes the rest)"
        )
    rows = [question for one in drawn for question in one.questions]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    click.echo(f"{out}: {len(rows)} questions")
