"""`selfplay distil`: a student learns from a teacher's probabilities for the student's replies."""

from __future__ import annotations

import sys
from typing import Any

import click

from flows.app.command.end import print_end
from flows.app.command.parameters import from_here, make_parameters, method_of, read_settings
from flows.app.command.start import run_flow
from flows.app.command.tune import SAME, of_updates
from flows.app.service.site import Site
from flows.runtime.store_root import existing_store, in_workspace

FLOW = "distillation-update"


@click.command()
@click.argument("name", metavar="RUN")
@click.option(
    "--teacher",
    metavar="RUN|MODEL",
    help="Scores the replies: a run, an adapter, or a model's folder or hub name.  [default: RUN]",
)
@click.option("--role", help="Role whose prompts are answered, such as responder.")
@click.option(
    "--student",
    metavar="base|RUN|ADAPTER",
    default="base",
    show_default=True,
    help="Policy to train: RUN's base model, or an adapter on it.",
)
@click.option("--run", "distilled", help="Name of the new run.  [default: RUN-distilled]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. iterations=5 or models.base=FOLDER.",
)
@click.option(
    "--here",
    "in_process",
    is_flag=True,
    help="Run in this process instead of a worker; Prefect still records the run.",
)
@click.option("--force", is_flag=True, help="Continue a run that had another configuration.")
def distil(
    name: str,
    teacher: str | None,
    role: str | None,
    student: str,
    distilled: str | None,
    settings: tuple[str, ...],
    in_process: bool,
    force: bool,
) -> None:
    """Train a student on a teacher's probabilities for its own replies to RUN's prompts.

    This is on-policy distillation. The teacher is what RUN trained, another run, or a larger model
    with the same vocabulary. Neither rewards nor reference answers are used. The new run works like
    any other: `status`, `evaluate`, `serve` and `export` accept it, and other runs can start from
    it (`--start`). Repeat the command to resume.
    """
    if teacher is not None:
        teacher = from_here(teacher)
    if student != "base":
        student = from_here(student)
    given = read_settings(settings)
    with in_workspace():  # paths in profiles are relative to it
        overrides = distilled_as(name, teacher, role, student) | given
    parameters = make_parameters("micro", distilled or f"{name}-distilled", None, overrides)
    if force:
        parameters["force"] = True
    is_completed = run_flow(Site.here(), FLOW, parameters, in_process)
    print_end(parameters["run"], is_completed)
    sys.exit(0 if is_completed else 1)


def distilled_as(name: str, teacher: str | None, role: str | None, student: str) -> dict[str, Any]:
    """Settings, taken from those of the run `name`, for a run that answers its prompts.

    Raises ValueError as `ReplayedRole.open` does, and for a run that trains no model.
    """
    from flows.blocks.replayed_role import ReplayedRole
    from flows.runtime.record import last_request
    from flows.settings.profile import MethodSettings

    store = existing_store()
    request = last_request(store, name)
    cfg = method_of(request).load(request, loads=False)
    if not isinstance(cfg, MethodSettings):
        raise ValueError(f"the run {name} asks no model, and has no prompts to answer")
    values = cfg.model_dump(mode="json")
    overrides: dict[str, Any] = {
        "source": name,
        "role": ReplayedRole.open(store, name, role).name,
        "teacher": teacher or name,
        "seed": cfg.seed,
        "models": {"base": cfg.models.base, "start": None if student == "base" else student},
        "engine": cfg.engine.model_dump(mode="json", exclude_unset=True),
        "judge_engine": values["judge_engine"],
    }
    overrides |= {key: values[key] for key in SAME}
    return overrides | of_updates(cfg)
