"""`selfplay tasks`: a method's proposer, gates, filters and judges make tasks, without training."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from flows.app.command.documents import request_with_documents
from flows.app.command.parameters import (
    find_flow,
    from_here,
    make_parameters,
    method_of,
    read_settings,
)
from flows.app.command.tables import print_table
from flows.app.service.site import Site
from flows.runtime.store_root import existing_store, in_workspace

if TYPE_CHECKING:
    from flows.environments.certificate import Share
    from warehouse.store import Store

REASONS = """
    select coalesce(reason, 'kept') as outcome, count(*) as candidates
    from selections where run = $run group by all order by candidates desc, outcome
"""


@click.command(name="tasks")
@click.argument("flow")
@click.option("--profile", default="micro", show_default=True, help="Profile of FLOW.")
@click.option("--corpus", help="A file or folder of text, or a prepared corpus.")
@click.option("--keep", type=click.IntRange(1), required=True, help="How many tasks to keep.")
@click.option(
    "--run",
    "name",
    help="Name of the run that holds the tasks.  [default: tasks-METHOD-PROFILE-CORPUS]",
)
@click.option(
    "--auditor",
    metavar="MODEL",
    help="Judges random samples of the tasks that pass: a folder, a hub name or api:NAME.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. audit.tasks=50.",
)
@click.option("--force", is_flag=True, help="Continue a run that had another configuration.")
def tasks(
    flow: str,
    profile: str,
    corpus: str | None,
    keep: int,
    name: str | None,
    auditor: str | None,
    settings: tuple[str, ...],
    force: bool,
) -> None:
    """Have FLOW write tasks until --keep of them have passed its gates and filters; train nothing.

    Prints why candidates were dropped, what a kept task cost, and the share of valid tasks with its
    interval, as far as an auditor, people or a built-in world judged them. `selfplay export RUN
    --tasks FORMAT` writes them for a trainer. Exits with 1 if fewer were kept.
    """
    from flows.app.service.shown_log import shown_log
    from flows.pilot.data_engine import make_tasks
    from flows.runtime.request import default_run

    flow = find_flow(flow)
    changes = read_settings(settings)
    if auditor is not None:
        changes["models.auditor"] = from_here(auditor)
    run = name or f"tasks-{default_run(flow, profile, corpus)}"
    parameters = make_parameters(profile, run, corpus, changes)
    request, _ = request_with_documents(Site.here(), flow, parameters)
    with shown_log(), in_workspace():  # paths in profiles are relative to it
        made = make_tasks(method_of(request), request, keep, force)
    store = existing_store()
    print_table(store_rows(store, run), "candidates")
    for alarm in made.alarms:
        click.echo(f"over a limit; a training run would stop here: {alarm}")
    if made.stopped:
        click.echo(f"stopped: {made.stopped}")
    spent = f"{made.seconds:.0f} s of stages and {made.num_tokens:,} sampled tokens"
    if not made.num_kept:
        raise click.ClickException(f"no task was kept in {spent}")
    click.echo(
        f"kept {made.num_kept} tasks in {spent}: {made.seconds_per_task:.2f} s and"
        f" {made.tokens_per_task:,.0f} tokens a task"
    )
    show_certificate(certificate_of(store, run))
    click.echo(f"`selfplay export {run} --tasks verifiers --keep {keep}` writes them for a trainer")
    sys.exit(made.num_kept < keep)


def store_rows(store: Store, run: str) -> list[dict[str, object]]:
    """What became of a run's candidates: how many were kept or dropped, by the first reason."""
    from warehouse.query import query

    return query(store.root, REASONS, {"run": run})


def certificate_of(store: Store, run: str) -> list[Share]:
    """The shares of valid tasks among those that a run kept, by auditor."""
    from flows.app.command.played_again import record
    from flows.environments.certificate import certificate
    from flows.environments.environment import kept_ids

    return certificate(store, run, kept_ids(record(store, run)))


def show_certificate(shares: list[Share]) -> None:
    """Print the share of valid tasks by each auditor, or how to get one if there was no audit."""
    if not shares:
        click.echo(
            "no task was audited: --auditor MODEL names a judge, and `selfplay view` has a page for"
            " people's labels"
        )
        return
    rows = [
        {
            "judged by": share.auditor,
            "tasks": share.of,
            "n": share.n,
            "valid": share.valid,
            "share": f"{share.share:.3f}",
            "95% interval": f"{share.low:.3f} to {share.high:.3f}",
        }
        for share in shares
    ]
    print_table(rows, "valid tasks")
