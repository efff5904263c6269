"""`selfplay fork`: a new run that continues from an iteration of another."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import click

from flows.app.command.screen import print_prose
from flows.app.command.start import inquire
from flows.app.service.waiting import waiting
from flows.runtime.store_root import existing_store

if TYPE_CHECKING:
    from flows.runtime.request import Request


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("new", metavar="NEW")
@click.option(
    "--from",
    "iteration",
    type=click.IntRange(0),
    required=True,
    help="Share RUN up to this iteration.",
)
def fork(name: str, new: str, iteration: int) -> None:
    """Create the run NEW, which begins with everything that RUN made up to and including an
    iteration.

    Continuing NEW rebuilds none of these iterations; other settings take effect from the next one
    on. The files are hard links (or copies, if the filesystem has no links): cleaning, rerunning or
    removing one run does not affect the other.

    Shared rows keep their ids and seeds, which begin with RUN. Rows that NEW makes get their own:
    ids and sampling seeds derive from addresses, which begin with the run's name. So NEW samples
    different rollouts from RUN, even with the same settings.
    """
    from flows.runtime.record import REQUEST, last_request
    from warehouse import fork as forking

    store = existing_store()
    request = last_request(store, name)
    forking.check(store, name, new, iteration)
    _check_complete(request, iteration)
    again = request.model_copy(update={"run": new})
    made = forking.fork(store, name, new, iteration, {REQUEST: again.model_dump(mode="json")})
    print_prose(
        f"{new} shares {made.num_tables} tables, {made.num_bytes / 1e6:.1f} MB, with {name}, up to"
        f" iteration {iteration}. To continue it, with other settings if you like:"
    )
    click.echo(f"  {_command(again)}")


def _check_complete(request: Request, iteration: int) -> None:
    """Raise ValueError if a flow run would still build a table up to the end of the iteration."""
    from warehouse.address import Address

    with waiting(f"the stages of {request.run} to be checked"):
        inquiry = inquire(request)
    reached = [Address.parse(address).iteration for address, _ in inquiry.reasons]
    if any(number is not None and number > iteration for number in reached):
        return
    reason = f"{inquiry.unmade} was never made" if inquiry.unmade else inquiry.stopped
    if reason:
        raise ValueError(
            f"iteration {iteration} of {request.run!r} is incomplete: {reason}. First:"
            f" {_command(request)}"
        )


def _command(request: Request) -> str:
    command = ["selfplay", "run", request.folder or request.flow]
    command += ["--profile", request.profile, "--run", request.run]
    if request.corpus:
        command += ["--corpus", request.corpus]
    for key, value in (request.overrides or {}).items():
        command += ["--set", f"{key}={json.dumps(value, ensure_ascii=False)}"]
    return shlex.join(command)
