"""`selfplay judge`: how far to trust a run's judge, on the terminal or as a judge card."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.findings import check_run
from flows.app.command.screen import print_prose
from flows.app.command.tables import print_table, visible
from flows.runtime.store_root import existing_store

if TYPE_CHECKING:
    from tasks.judges.trial import Trial

SHOWN = 8  # number of wrong verdicts shown on the terminal
SHORT = 34  # maximum number of characters shown of a criterion
BY = ("phase", "iteration", "place", "role", "criterion", "length", "position")


@click.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--by",
    type=click.Choice(BY),
    default="phase",
    show_default=True,
    help="How to group the verdicts; a place is an iteration and a phase.",
)
@click.option("--iteration", type=int, help="Up to this iteration.  [default: all]")
@click.option(
    "--export",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the judge card into FOLDER: judge.md and judge.json.",
)
def judge(name: str, by: str, iteration: int | None, folder: Path | None) -> None:
    """Show how far to trust the judge of RUN: how often its verdicts agree with what is known.

    Verdicts are compared with the true facts of a built-in world, canaries, people's labels, a
    rule, an auditor, and with each other where the same thing was judged again. In the tables, +
    counts false passes, - false fails and ? unreadable verdicts. The card has all groupings.
    """
    from tasks.judges.trial import hold_trial
    from warehouse.lake import Lake

    store = existing_store()
    check_run(store, name)
    trial = hold_trial(Lake(store), name, iteration=iteration)
    if folder is not None:
        _write(trial, folder)
        return
    if not trial.overall:
        print_prose(
            "the verdicts of this run cannot be checked: it has no known truth, canaries, labels,"
            " rule or auditor"
        )
        if not trial.asked_again:
            return
    print_table([_short(row) for row in trial.overall], "agreement")
    print_table([_short(row, by) for row in trial.by[by]], f"by {by}")
    if trial.asked_again:
        print_table([_again(row) for row in trial.asked_again], "the same asked again")
    print_table(
        [_wrong(row) for row in trial.wrong[:SHOWN]],
        f"{trial.num_wrong} wrong verdicts, those on the most reinforced answers first",
    )
    click.echo(f"the card with all groupings: selfplay judge {name} --export FOLDER")


def _write(trial: Trial, folder: Path) -> None:
    from tasks.judges.trial import card

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dataclasses.asdict(trial), indent=1, default=str)
    (folder / "judge.json").write_text(text + "\n", encoding="utf-8")
    (folder / "judge.md").write_text(card(trial), encoding="utf-8")
    click.echo(f"wrote {folder / 'judge.md'} and {folder / 'judge.json'}")


def _short(row: dict[str, Any], by: str = "") -> dict[str, Any]:
    """A row of agreement with few columns, to fit a terminal 80 characters wide."""
    from tasks.judges.trial import share

    line = {"verdict": row["what"], "standard": row["standard"]}
    if by:
        line[by] = row["part"].strip()
    else:
        line["yes"] = share(row["yes_rate"])
    return {
        **line,
        "n": row["n"],
        "agree": share(row["agreement"]),
        "kappa": "–" if row["kappa"] is None else f"{row['kappa']:.2f}",
        "+": row["num_false_pass"],
        "-": row["num_false_fail"],
        "?": row["num_unread"],
    }


def _again(row: dict[str, Any]) -> dict[str, Any]:
    from tasks.judges.trial import share

    return {
        "verdict": row["what"],
        "phase": row["phase"],
        "things": row["num_things"],
        "verdicts": row["num_verdicts"],
        "disputed": row["num_disputed"],
        "two agree": share(row["agreement"]),
        "by chance": share(row["chance"]),
    }


def _wrong(row: dict[str, Any]) -> dict[str, Any]:
    advantage = row["advantage"]
    return {
        "iter": row["iteration"],
        "phase": row["phase"],
        "advantage": "–" if advantage is None else f"{advantage:+.2f}",
        "verdict": row["verdict"],
        "known": row["truth"],
        "criterion": visible(row["criterion"] or row["what"])[:SHORT],
    }
