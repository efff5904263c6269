"""`selfplay fork`: a new run that continues from an iteration of another."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import click

from flows.command.start import inquire
from flows.service.site import existing_store
from flows.service.waiting import waiting

if TYPE_CHECKING:
    from flows.request import Request


@click.command()
@click.argument("name", metavar="RUN")
@click.argument("new", metavar="NEW")
@click.option("--from", "iteration", type=click.IntRange(0), required=True, help="Share RUN up to this iteration.")
def fork(name: str, new: str, iteration: int) -> None:
    """Create the run NEW, which begins with everything that RUN made up to and including an iteration.

    Continuing NEW rebuilds none of these iterations; other settings take effect from the next one on. The files are
    hard links (or copies, if the filesystem has no links): cleaning, rerunning or removing one run does not affect the
    other.

    Shared rows keep their ids and seeds, which begin with RUN. Rows that NEW makes get their own: ids and sampling
    seeds derive from addresses, which begin with the run's name. So NEW samples other rollouts than RUN did, even with
    the same settings.
    """
    from flows.record import REQUEST, last_request
    from warehouse import fork as forking

    store = existing_store()
    asked = last_request(store, name)
    forking.check(store, name, new, iteration)
    _check_complete(asked, iteration)
    again = asked.model_copy(update={"run": new})
    made = forking.fork(store, name, new, iteration, {REQUEST: again.model_dump(mode="json")})
    click.echo(
        f"{new} shares {made.num_tables} tables, {made.num_bytes / 1e6:.1f} MB, with {name}, up to iteration "
        f"{iteration}. To continue it, with other settings if you like: {_command(again)}"
    )


def _check_complete(asked: Request, iteration: int) -> None:
    """Raise ValueError unless a flow run would reach the end of the iteration without building a table."""
    from warehouse.address import Address

    with waiting(f"the stages of {asked.run} to be checked"):
        inquiry = inquire(asked)
    reached = [Address.parse(address).iteration for address, _ in inquiry.found]
    if any(number is not None and number > iteration for number in reached):
        return
    reason = f"{inquiry.unmade} was never made" if inquiry.unmade else inquiry.stopped
    if reason:
        raise ValueError(f"iteration {iteration} of {asked.run!r} is incomplete: {reason}. First: {_command(asked)}")


def _command(asked: Request) -> str:
    corpus = ["--corpus", asked.corpus] if asked.corpus else []
    settings = [f"{key}={json.dumps(value)}" for key, value in (asked.overrides or {}).items()]
    changed = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(
        ["selfplay", "run", asked.flow, "--profile", asked.profile, "--run", asked.run, *corpus, *changed]
    )
