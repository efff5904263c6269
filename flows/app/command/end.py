"""The last lines of a run: its findings, its score, and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from flows.app.command.findings import print_findings
from flows.app.command.status import scores_of
from flows.runtime.store_root import open_store

if TYPE_CHECKING:
    from warehouse.store import Store


def print_end(name: str, is_completed: bool = True) -> None:
    """Print a run's findings, its held-out scores by iteration, and the next commands."""
    store = open_store()
    if not store.folder(name).exists():
        return
    print_findings(store, name)
    scores = [score for number, score in scores_of(store, name).items() if number is not None]
    if scores:
        click.echo(f"held-out score of {name}: {' → '.join(scores)}")
    elif is_completed and _has_learnt(store, name):
        click.echo(
            f"no held-out score: `selfplay evaluate {name} --benchmark FILE` scores the policy on"
            " questions with answers"
        )
    if is_completed:
        commands = [f"selfplay view {name}", f"selfplay status {name}"]
        if _has_judge(store, name):
            commands.append(f"selfplay judge {name}")
    else:
        commands = [f"selfplay status {name}", f"selfplay why {name}"]
    click.echo(f"next: {', '.join(commands)}")


def _has_judge(store: Store, name: str) -> bool:
    """Whether a model judged anything: answers (by criteria or votes), or tasks at a gate."""
    from warehouse.query import query

    return bool(query(store.root, JUDGED, {"run": name}))


def _has_learnt(store: Store, name: str) -> bool:
    from warehouse.query import query

    return bool(query(store.root, "select 1 from updates where run = $run limit 1", {"run": name}))


JUDGED = """
    select 1 from judgments where run = $run
    union all
    select 1 from votes where run = $run
    union all
    select 1 from gates where run = $run and judge_rollout_id is not null
    limit 1
"""
