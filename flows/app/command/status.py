"""`selfplay status`: all runs, or one run on one screen; with `--all`, every stage of that run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.findings import check_run, print_findings
from flows.app.command.tables import print_table, visible
from flows.runtime.store_root import existing_store, has_store, store_root

if TYPE_CHECKING:
    from warehouse.store import Store

LAST = 6  # number of iterations that fit on one screen


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option("--all", "is_whole", is_flag=True, help="List every stage of RUN.")
def status(name: str | None, is_whole: bool) -> None:
    """List the runs, or show RUN on one screen, and what is running.

    The screen of RUN begins with its findings. The seconds of an iteration or phase are the sum
    over its stages, even if some ran at the same time. --all lists each stage with its rows,
    tokens, seconds, GPU-seconds and memory.
    """
    from warehouse import status as made

    if name is None and not (has_store() or os.environ.get("SELFPLAY_STORE")):
        click.echo(
            f"runs in {store_root()}: none yet; `selfplay demo` makes some, or `selfplay run`"
        )
        return
    store = existing_store()
    if name is None:
        print_table(made.runs(store), f"runs in {store.root}")
    else:
        check_run(store, name)
        _print_run(store, name, is_whole)
    if work := made.working(store, name):
        print_table(work, "running now")
    else:
        click.echo("running now: nothing")


def _print_run(store: Store, name: str, is_whole: bool) -> None:
    from warehouse import status as made
    from warehouse.draft import RECIPE
    from warehouse.fork import FORK
    from warehouse.stopped import stopped

    print_findings(store, name)
    if is_whole:
        print_table(made.stages(store, name), "stages")
    else:
        parts = made.parts(store, name)
        rows = [_with_score(row, scores_of(store, name)) for row in parts.iterations]
        left_out = len(rows) - LAST
        earlier = f", without the first {left_out}" if left_out > 0 else ""
        print_table(rows[-LAST:], f"iterations{earlier}")
        if parts.phases:
            print_table(parts.phases, f"iteration {parts.last} by phase")
    if origin := store.kept(name, FORK):
        click.echo(f"forked from {origin['run']} after iteration {origin['iteration']}")
    if cause := stopped(store, name):
        click.echo(visible(str(cause)))
    for address in store.without_recipe(name):
        click.echo(f"{address}/{RECIPE} is lost, truncated or changed: repeat `selfplay run`")
    if not is_whole:
        click.echo(f"every stage: selfplay status {name} --all")


def scores_of(store: Store, name: str) -> dict[int | None, str]:
    """The held-out scores by iteration, as text; if there are several benchmarks, the first two."""
    from warehouse.query import query

    texts: dict[int | None, list[str]] = {}
    for row in query(store.root, SCORES, {"run": name}):
        texts.setdefault(row["iteration"], []).append(f"{row['score']:.3f}")
    return {iteration: ", ".join(scores[:2]) for iteration, scores in texts.items()}


SCORES = """
    select iteration, benchmark, avg(score) as score from evaluations
    where run = $run and metric = 'score' and score is not null and is_held_out(phase, benchmark)
    group by iteration, benchmark order by iteration, benchmark
"""


def _with_score(row: dict[str, Any], scores: dict[int | None, str]) -> dict[str, Any]:
    iteration = row["iteration"]
    name = "none" if iteration is None else iteration
    return {**row, "iteration": name, "score": scores.get(iteration, "")}
