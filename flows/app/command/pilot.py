"""`selfplay pilot`: will this model learn with this method from these documents?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.documents import request_with_documents
from flows.app.command.parameters import (
    deployments_of,
    find_flow,
    make_parameters,
    method_of,
    read_settings,
)
from flows.app.command.tables import print_table
from flows.app.service.site import Site
from flows.runtime.store_root import in_workspace, open_store
from tasks.reports.percent import percent

if TYPE_CHECKING:
    from flows.pilot.signals import Signals
    from flows.pilot.verdict import Verdict

HOUR_S = 3600
OF_A_STRONGER_MODEL = "documents"  # the profile for runs on questions written by a stronger model


@click.command()
@click.argument("flow")
@click.option("--profile", default="micro", show_default=True, help="Profile of FLOW.")
@click.option(
    "--run",
    "name",
    help="Name of the run that continues from the pilot.  [default: METHOD-PROFILE-CORPUS]",
)
@click.option("--corpus", help="A file or folder of text, or a prepared corpus.")
@click.option(
    "--start",
    metavar="RUN|ADAPTER",
    help="Start from the last policy of another run, or from a LoRA adapter; sets models.start.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. group_size=4.",
)
@click.option("--force", is_flag=True, help="Continue a run that had another configuration.")
def pilot(
    flow: str,
    profile: str,
    name: str | None,
    corpus: str | None,
    start: str | None,
    settings: tuple[str, ...],
    force: bool,
) -> None:
    """Run the first step of FLOW without training, and say whether the run will learn.

    `selfplay run` with the same options continues from what the pilot sampled. Exits with 1 if
    the verdict is "no signal".
    """
    from flows.app.service.shown_log import shown_log
    from flows.pilot.play import play_pilot
    from flows.pilot.signals import measure
    from flows.pilot.verdict import judge
    from flows.runtime.request import default_run

    flow = find_flow(flow)
    parameters = make_parameters(
        profile, name or default_run(flow, profile, corpus), corpus, read_settings(settings), start
    )
    request, cfg = request_with_documents(Site.here(), flow, parameters)
    with shown_log(), in_workspace():  # paths in profiles are relative to it
        notes = play_pilot(method_of(request), request, force)
    signals = measure(open_store(), request.run, cfg, notes)
    verdict = judge(signals)
    _show(signals, verdict)
    if corpus is not None and verdict.reasons and OF_A_STRONGER_MODEL in deployments_of(flow):
        click.echo(
            f"- A stronger model can write the questions: `selfplay ask {corpus} --with MODEL`,"
            f" then `selfplay run {flow} --profile {OF_A_STRONGER_MODEL} --set"
            " given=questions.jsonl` (flows/spell/README.md, Your documents)."
        )
    click.echo(
        f"\nrows: `selfplay view {request.run}`; the same options with `selfplay run` continue from"
        " here"
    )
    sys.exit(verdict.outlook == "no signal")


def _show(signals: Signals, verdict: Verdict) -> None:
    print_table(_of_roles(signals), "replies")
    if examples := _of_unreadable(signals):
        print_table(examples, "replies that could not be read")
    if signals.filters:
        print_table(_of_filters(signals), "tasks")
    if signals.rewards:
        print_table(_of_rewards(signals), "groups of rewards")
    if signals.agreement is not None:
        click.echo(f"two votes on one answer agree: {percent(signals.agreement)}")
    if signals.metrics:
        rows = [
            {"measured": each.metric, "mean": f"{each.value:.3f}", "limit": each.limit}
            for each in signals.metrics
        ]
        print_table(rows, "measured before the update")
    hours = signals.seconds * signals.num_steps / HOUR_S
    click.echo(
        f"the pilot sampled {signals.num_tokens:,} tokens in {signals.seconds:.0f} s; a full run"
        f" repeats it {signals.num_steps} times: about {signals.num_tokens * signals.num_steps:,}"
        f" tokens and {hours:.1f} h here, without updates and held-out scores"
    )
    click.echo(f"\nverdict: {verdict.sentence}")
    for advice in verdict.advice:
        click.echo(f"- {advice}")


def _of_roles(signals: Signals) -> list[dict[str, Any]]:
    return [
        {
            "role": role.name,
            "replies": role.num_replies,
            "readable": percent(role.readable),
            "tokens, mean": f"{role.num_tokens:.0f}",
            "cut off": percent(role.cut_off),
        }
        for role in signals.roles
    ]


def _of_unreadable(signals: Signals) -> list[dict[str, Any]]:
    return [
        {"role": role.name, "replies": number, "why": reason, "example": example}
        for role in signals.roles
        for reason, (number, example) in list(role.reasons.items())[:2]
    ]


def _of_filters(signals: Signals) -> list[dict[str, Any]]:
    return [
        {
            "filter": each.name,
            "candidates": each.num_candidates,
            "pass": each.num_passed,
            "kept": each.num_kept,
            "others": ", ".join(f"{reason} {number}" for reason, number in each.reasons.items()),
        }
        for each in signals.filters
    ]


def _of_rewards(signals: Signals) -> list[dict[str, Any]]:
    return [
        {
            "role": each.role,
            "groups": each.num_groups,
            "with contrast": each.num_with_contrast,
            "spread within a group": f"{each.spread:.3f}",
        }
        for each in signals.rewards
    ]
