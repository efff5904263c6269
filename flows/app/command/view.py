"""`selfplay view`: the store in a browser."""

from __future__ import annotations

import contextlib

import click

from flows.runtime.store_root import existing_store
from warehouse.address import no_run


@click.command()
@click.argument("name", metavar="[RUN]", required=False)
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Port.  [default: the first free from 4218]"
)
@click.option("--no-browser", is_flag=True, help="Print the address but do not open a browser.")
def view(name: str | None, port: int | None, no_browser: bool) -> None:
    """Browse the store, starting at RUN: runs, tasks, rollouts, rewards, documents, updates.

    The server answers only on this machine and only to the address it prints. It changes nothing in
    the store except the labels that you give. Ctrl-C ends it.
    """
    from flows.app.viewer.server import serve

    store = existing_store()
    if name is not None and not store.folder(name).is_dir():
        raise no_run(name)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how users end it
        serve(store, name or "", port, browser=not no_browser, say=click.echo)
