"""`selfplay up`, `stop`, `down` and `services`: the Prefect server and workers behind the runs."""

from __future__ import annotations

import click

from flows.app.command.tables import print_table
from flows.app.service.site import Site
from flows.app.service.waiting import say


@click.command()
@click.option(
    "--port", type=click.IntRange(1024, 65535), help="Port of the server on 127.0.0.1; remembered."
)
@click.option("--gpu", is_flag=True, help="Start the gpu pool's worker even if no GPU was found.")
def up(port: int | None, gpu: bool) -> None:
    """Start the server and the workers that are not running, and deploy the profiles."""
    from flows.app.service import services as running

    site = Site.here()
    if port:
        site = Site(home=site.home, port_choice=port)
    running.up(site, pools=tuple(running.POOLS) if gpu else None, say=say)
    click.echo(
        f"ready: http://127.0.0.1:{site.port} (user and password: PREFECT_API_AUTH_STRING in"
        f" {site.env_file})"
    )


@click.command()
@click.argument("name", metavar="RUN")
def stop(name: str) -> None:
    """Stop the flow run of RUN. Published tables are kept; repeat `selfplay run` to resume."""
    from flows.app.service import at_work

    at_work.stop(Site.here(), name, say=say)


@click.command()
def down() -> None:
    """Stop the server, the workers and running flows; their runs can be resumed."""
    from flows.app.service import services as running

    running.down(Site.here(), say=say)


@click.command()
def services() -> None:
    """List the services and running flows, with process ids and log files."""
    from flows.app.service import services as running

    print_table(running.status(Site.here()))
