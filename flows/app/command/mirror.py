"""`selfplay push` and `selfplay pull`: copies of runs in a bucket or a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from flows.runtime.store_root import existing_store, open_store


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("url")
@click.option("--weights", is_flag=True, help="Also push the weights and adapters of all updates.")
@click.option("--optimizer", is_flag=True, help="Also push the optimizer states.")
@click.option(
    "--replace", is_flag=True, help="Replace tables that were rebuilt here since they were pushed."
)
def push(name: str, url: str, weights: bool, optimizer: bool, replace: bool) -> None:
    """Copy the tables of RUN into the mirror at URL: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX,
    az://CONTAINER/PREFIX, or a folder.

    Files are sent before the recipe that makes their table visible, so that an interrupted push
    shows only complete tables. Repeat the command to continue. Credentials come from the
    environment, as for the cloud's own tools.
    """
    from warehouse import push as pushing
    from warehouse.mirror import open_mirror

    store = existing_store()
    pushed = pushing.push(
        store,
        name,
        open_mirror(url),
        kinds=_kinds(weights, optimizer),
        replace_rebuilt=replace,
        report=_progress("pushed"),
    )
    click.echo(
        f"pushed {pushed.num_tables} tables of {name} to {url}, {pushed.num_there} were there:"
        f" {pushed.num_files} files, {pushed.num_bytes / 1e6:.1f} MB"
    )
    if pushed.unfinished:
        click.echo(
            f"left out: {len(pushed.unfinished)} table(s) whose weights are being written, the"
            f" first is {pushed.unfinished[0]}. Push again when they are"
        )
    if pushed.other_runs:
        click.echo(
            "this run is made from tables of other runs; push these as well:"
            f" {_list(pushed.other_runs)}"
        )


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("url")
@click.option("--weights", is_flag=True, help="Also pull the weights and adapters of all updates.")
@click.option("--optimizer", is_flag=True, help="Also pull the optimizer states.")
@click.option(
    "--replace", is_flag=True, help="Replace tables here that differ from those in the mirror."
)
def pull(name: str, url: str, weights: bool, optimizer: bool, replace: bool) -> None:
    """Copy RUN from the mirror at URL into the store, and compare every file with its hash.

    Repeat the command to continue, or to fetch what was pushed since. To continue the run itself,
    pull its weights and optimizer states as well.
    """
    from warehouse import pull as pulling
    from warehouse.mirror import open_mirror

    pulled = pulling.pull(
        open_store(),
        name,
        open_mirror(url),
        kinds=_kinds(weights, optimizer),
        replace_rebuilt=replace,
        report=_progress("pulled"),
    )
    click.echo(
        f"pulled {pulled.num_tables} tables of {name}, {pulled.num_there} were here:"
        f" {pulled.num_files} files, {pulled.num_bytes / 1e6:.1f} MB. `selfplay status {name}`"
        " lists them"
    )
    for kind, number in pulled.absent.items():
        option = "--weights" if kind == "weights" else "--optimizer"
        click.echo(f"{number} file(s) of {kind} are not in the mirror: push with {option}")
    if pulled.changed:
        click.echo(f"not overwritten, because they were changed here: {_list(pulled.changed)}")


def _kinds(weights: bool, optimizer: bool) -> list[str]:
    from warehouse.mirror import OPTIMIZER, ROWS, WEIGHTS

    kinds = [ROWS]
    if weights:
        kinds.append(WEIGHTS)
    if optimizer:
        kinds.append(OPTIMIZER)
    return kinds


def _progress(verb: str) -> Callable[[int, int], None]:
    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{verb} {done}/{total} tables", nl=done == total, err=True)

    return show


def _list(names: list[str]) -> str:
    return ", ".join(names)
