"""`selfplay study`: many small runs that answer one question."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from flows.app.claims import Part

PHASE = "phase"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--seeds", multiple=True, type=int, help="A seed to run (repeatable); not for phase.")
@click.option("--variant", "variants", multiple=True, help="Run only this variant (repeatable).")
@click.option(
    "--part",
    metavar="I/N",
    help="Run the I-th of N parts, so that N processes can run at the same time.",
)
@click.option(
    "--again", is_flag=True, help="Also repeat runs whose results are kept in data/bench."
)
@click.option("--gpu", is_flag=True, help="Run on a GPU, which several parts can share.")
@click.option(
    "--add",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run nothing; also count the runs in another machine's NAME-runs.parquet (repeatable).",
)
@click.option("--list", "lists", is_flag=True, help="Run nothing; list what is left.")
def study(
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    variants: tuple[str, ...],
    part: str | None,
    again: bool,
    gpu: bool,
    files: tuple[Path, ...],
    lists: bool,
) -> None:
    """Run studies: many small runs, one after the other, on shared engines.

    NAME is a method (azr, eapo, goose, mae, rzero, scope, spell, spice or ssp), whose ablations
    test its paper's claims in a built-in world; `leading`, `paraphrases`, `known-facts`,
    `length-bias` or `deep`, which test EAPO, SPELL, SCOPE and SPICE where it is harder to learn;
    `english`, `peps`, `articles` or `reports`, which train SmolLM2 on real texts; or `phase`, which
    measures how much error in the verdicts a method tolerates. Without NAME, all studies except
    `phase` are run. Repeat the command to resume.

    Tables and figures are written to data/bench after every run or variant, together with the
    scores of every finished run (`NAME-runs.parquet`). A run in this file is not repeated, even in
    another store or on another machine that has the file.
    """
    from flows.app import claims
    from flows.app.command.tables import print_table
    from flows.app.phase import play
    from flows.app.phase.grid import Grid

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if files:
        if len(names) != 1:
            raise ValueError("--add FILE is for one study: name it")
        if PHASE in names:
            play.add_runs(Grid.load(), files)
        else:
            [claimed] = claims.load_studies(names)
            claims.add_runs(claimed, files)
        return
    if PHASE not in names:
        claims.run_studies(
            names, list(seeds) or None, list(variants) or None, lists, again, gpu, read_part(part)
        )
        return
    if len(names) > 1 or seeds or variants:
        raise ValueError("phase is played alone: its grid is in flows/app/phase/grid.toml")
    grid = Grid.load()
    if lists:
        print_table(play.progress(grid))
    else:
        play.play_grid(grid, read_part(part), again, gpu)


def read_part(text: str | None) -> Part:
    """Parse a part of a study, I/N. Raises ValueError for another form, or a nonexistent part.

    >>> read_part("2/3"), read_part(None)
    ((2, 3), (1, 1))
    """
    if text is None:
        return 1, 1
    number, _, num_parts = text.partition("/")
    if not (number.isdecimal() and num_parts.isdecimal()):
        raise ValueError(f"--part {text}: write I/N, such as 1/2")
    part = int(number), int(num_parts)
    if not 1 <= part[0] <= part[1]:
        raise ValueError(f"--part {text}: there is no such part")
    return part
