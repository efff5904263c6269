"""`selfplay whatif`: what a run's rewards and selections would have been.

They are computed from its stored rollouts.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import TYPE_CHECKING

import click

from flows.app.command.parameters import read_settings
from flows.app.command.screen import print_prose
from flows.app.command.start import play_by
from flows.app.command.tables import print_table
from flows.runtime.store_root import existing_store

if TYPE_CHECKING:
    from warehouse.schemas import Row
    from warehouse.table import Table
    from warehouse.whatif import WhatIf

# number of tasks listed, and maximum number of characters of each
LISTED = 20
TEXT = 80


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("stage", required=False)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another setting, e.g. pool.window=[0,1].",
)
@click.option(
    "--all", "whole", is_flag=True, help=f"List all tasks that change, not just the first {LISTED}."
)
def whatif(name: str, stage: str | None, settings: tuple[str, ...], whole: bool) -> None:
    """Compute the rewards and selections of RUN with another setting, or with the current code.

    Samples nothing. Reruns the stages between stored rollouts and their rewards in a temporary
    folder: readers, comparisons, votes, rewards, filters. Prints rank correlations with the stored
    rewards, and the tasks that would be kept or dropped. STAGE limits the rewards that are
    compared: rewards, rewards.challenger, solver/advantages.

    Every step is evaluated on its own stored rollouts: what the policy would have sampled after
    another update, or about other tasks, is unknown.
    """
    from flows.runtime.record import last_request
    from warehouse.store import Store
    from warehouse.whatif import WhatIf, leading_to

    store = existing_store()
    request = last_request(store, name)
    compared = _compared(name, stage)
    wanted = leading_to(store, frozenset(table.address for table in compared))
    with tempfile.TemporaryDirectory(prefix="selfplay-whatif-") as folder:
        what_if = WhatIf(scratch=Store(folder), wanted=wanted)
        play_by(what_if, request, read_settings(settings))
        _print_differences(what_if, compared, whole)


def _compared(run: str, stage: str | None) -> list[Table]:
    """The run's rewards, or only those that `stage` names, and all its selections.

    Raises ValueError for a stage that does not make rewards.
    """
    from flows.app.whatif.compare import KEPT, REWARDS
    from warehouse.rerun import chosen

    store = existing_store()
    tables = [store.get(address) for address in sorted(chosen(store, run, stage or "*"))]
    rewards = [table for table in tables if table.schema.name in REWARDS]
    if not rewards:
        there = sorted(
            {table.at.name for table in store.tables(run) if table.schema.name in REWARDS}
        )
        raise ValueError(
            f"whatif compares rewards: {', '.join(there) or f'run {run!r} has none yet'}"
        )
    return rewards + [table for table in store.tables(run) if table.schema.name in KEPT]


def _print_differences(what_if: WhatIf, compared: list[Table], whole: bool) -> None:
    from flows.app.whatif.compare import (
        KEPT,
        REWARDS,
        compare_kept,
        compare_rewards,
        count_kept,
    )

    changed = [table for table in compared if table.address in what_if.instead]
    print_prose(
        f"stages rerun on stored tables: {len(what_if.made)}; tables of rewards and selections that"
        f" would differ: {len(changed)} of {len(compared)}"
    )
    if rewards := [table for table in changed if table.schema.name in REWARDS]:
        print_table(
            [_readable(row) for row in compare_rewards(rewards, what_if.instead)],
            "rewards that would change",
        )
    if kept := [table for table in changed if table.schema.name in KEPT]:
        run = kept[0].at.run
        store = existing_store()
        tasks = (table for table in store.tables(run) if table.schema.name == "tasks")
        rows = compare_kept(kept, what_if.instead, tasks)
        every_kept = [table for table in compared if table.schema.name in KEPT]
        print_table(
            [_readable(row) for row in count_kept(every_kept, what_if.instead)],
            "kept now, and how many would be",
        )
        print_table(_counts(rows), "what would be kept, or no longer")
        listed = rows if whole else rows[:LISTED]
        print_table(
            [_readable(_short(row)) for row in listed], f"{len(listed)} of {len(rows)}, by name"
        )
    end = what_if.stopped
    if what_if.unmade:
        end = f"{what_if.unmade} was never made"
    if end:
        print_prose(f"what follows is not compared: {end}")


def _readable(row: Row) -> Row:
    return {
        name.replace("_", " "): f"{value:.3f}" if isinstance(value, float) else value
        for name, value in row.items()
    }


def _counts(rows: list[Row]) -> list[Row]:
    counts = Counter((row["place"], row["was"], row["would_be"]) for row in rows)
    return [
        {"place": place, "was": was, "would be": would_be, "number": number}
        for (place, was, would_be), number in sorted(counts.items())
    ]


def _short(row: Row) -> Row:
    return {**row, "task": " ".join((row["task"] or "").split())[:TEXT]}
