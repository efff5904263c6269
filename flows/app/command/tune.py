"""`selfplay tune`: a policy or a judge learns from labels, or from rewards, of a run's replies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.end import print_end
from flows.app.command.parameters import from_here, make_parameters, method_of, read_settings
from flows.app.command.start import run_flow
from flows.app.service.site import Site
from flows.runtime.store_root import existing_store, in_workspace

if TYPE_CHECKING:
    from flows.blocks.compared_replies import Source
    from flows.settings.profile import MethodSettings

FLOW = "preference-update"
# settings of the source run that apply to any model
SAME = ("trainer_processes", "resident_trainer", "reference_by", "check_updates", "api")
SAME_OF_UPDATES = (
    "learning_rate",
    "micro_batch_size",
    "lora",
    "dtype",
    "export_dtype",
    "attention",
    "gradient_checkpointing",
)


@click.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--on",
    type=click.Choice(["labels", "rewards"]),
    default="labels",
    show_default=True,
    help="What decides which of RUN's replies to a prompt is better.",
)
@click.option(
    "--role",
    help="Role whose replies to use, such as verifier.  [default: the only role with labels]",
)
@click.option(
    "--start",
    metavar="base|RUN|ADAPTER",
    help="Policy to train.  [default: the one that gave the replies, as RUN left it]",
)
@click.option("--run", "tuned", help="Name of the new run.  [default: RUN-tuned]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. update.beta=0.3.",
)
@click.option(
    "--here",
    "in_process",
    is_flag=True,
    help="Run in this process instead of a worker; Prefect still records the run.",
)
@click.option("--force", is_flag=True, help="Continue a run that had another configuration.")
def tune(
    name: str,
    on: str,
    role: str | None,
    start: str | None,
    tuned: str | None,
    settings: tuple[str, ...],
    in_process: bool,
    force: bool,
) -> None:
    """Train by DPO on pairs of a better and a worse reply from RUN.

    People label replies and verdicts in `selfplay view`. Labels of verdicts make a better judge,
    labels of answers a better policy. The new run works like any other: `status`, `evaluate`,
    `serve` and `export` accept it, and other runs can start from it (`--start`). Repeat the command
    to resume.
    """
    if start not in (None, "base"):
        start = from_here(start)
    given = read_settings(settings)
    with in_workspace():  # paths in profiles are relative to it
        overrides = tuned_as(name, on, role, start) | given
    parameters = make_parameters("micro", tuned or f"{name}-tuned", None, overrides)
    if force:
        parameters["force"] = True
    is_completed = run_flow(Site.here(), FLOW, parameters, in_process)
    print_end(parameters["run"], is_completed)
    sys.exit(0 if is_completed else 1)


def tuned_as(name: str, on: str, role: str | None, start: str | None) -> dict[str, Any]:
    """Settings, taken from those of the run `name`, for a run that learns from its replies.

    Raises ValueError as `Source.open` does, for a run that trains nothing, and for replies from an
    API.
    """
    from flows.blocks.compared_replies import Source
    from flows.runtime.record import last_request
    from flows.settings.profile import MethodSettings

    store = existing_store()
    request = last_request(store, name)
    cfg = method_of(request).load(request, loads=False)
    if not isinstance(cfg, MethodSettings):
        raise ValueError(f"the run {name} trains no model, and has no replies to learn from")
    assert on in ("labels", "rewards"), "the option's choices"
    source = Source.open(store, name, on, role)
    overrides: dict[str, Any] = {"source": name, "on": on, "role": source.role, "seed": cfg.seed}
    overrides |= _model_of(source, cfg, start)
    values = cfg.model_dump(mode="json")
    overrides |= {key: values[key] for key in SAME}
    overrides |= of_updates(cfg)
    key = "update.micro_batch_size"
    if key in overrides:
        overrides[key] += overrides[key] % 2  # a pair is two rows
    return overrides


def of_updates(cfg: MethodSettings) -> dict[str, Any]:
    """The settings of a run's first kind of update that apply to updates of any kind."""
    from flows.runtime.start import updates_in

    update = next((update for _, update in updates_in(cfg)), None)
    if update is None:
        return {}
    values = update.model_dump(mode="json")
    return {f"update.{key}": values[key] for key in SAME_OF_UPDATES}


def _model_of(source: Source, cfg: MethodSettings, start: str | None) -> dict[str, Any]:
    """The settings of the model that gave the replies, and of its engine."""
    player = source.player
    weights = cfg.models.base
    if player is None:
        given = source.given_policies
        weights = next(given[sampler]["weights"] for sampler in source.samplers if sampler in given)
        start = None if start == "base" else start or cfg.models.start
        if weights != cfg.models.base:
            start = None
    elif start is None:
        start = f"{source.run}/{player}"
    elif start == "base":
        start = None
    engine = cfg.engine
    if weights != cfg.models.base and cfg.judge_engine is not None:
        engine = cfg.judge_engine
    of_engine = engine.model_dump(mode="json", exclude_unset=True) | {"model": weights}
    return {
        "models": {"base": weights, "start": start},
        "engine": of_engine,
    }
