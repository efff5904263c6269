"""`selfplay launch`: write the file that starts a run on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.app.command.plan import DEFAULT_GPU

if TYPE_CHECKING:
    from flows.app.launch.job import JobRequest
    from flows.app.launch.work_pool import Deployment

DEFAULT_IMAGE = "REGISTRY/selfplay:latest"


@click.command()
@click.argument("kind", type=click.Choice(["slurm", "kubernetes", "skypilot"]))
@click.argument("flow")
@click.option("--profile", required=True, help="A profile that uses GPUs.")
@click.option("--run", "name", help="Name of the run.  [default: METHOD-PROFILE-CORPUS]")
@click.option("--corpus", help="As for `selfplay run`, with a path that the nodes see.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. num_engines=16.",
)
@click.option("--gpu", "card", default=DEFAULT_GPU, show_default=True, help="GPU model.")
@click.option(
    "--gpus-per-node", default=8, show_default=True, type=click.IntRange(1), help="GPUs per node."
)
@click.option(
    "--hours", type=click.IntRange(1), help="Time limit.  [default: 1.3 times the plan's]"
)
@click.option(
    "--shared",
    default=None,
    metavar="PLACE",
    help=(
        "Storage that all nodes share: a folder (Slurm), a ReadWriteMany volume claim (Kubernetes)"
        " or a volume (SkyPilot).  [default: $PWD/data, selfplay, selfplay]"
    ),
)
@click.option(
    "--image", default=DEFAULT_IMAGE, show_default=True, help="Container image (not for Slurm)."
)
@click.option(
    "--work-pool",
    "pool",
    metavar="NAME",
    help="For Kubernetes: a Prefect work pool and a deployment instead of a RayJob.",
)
@click.option("--push", "mirror", metavar="URL", help="Push the run to this mirror when it ends.")
@click.option(
    "-o",
    "--output",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder.  [default: this one]",
)
def launch(  # noqa: PLR0913 -- one argument for each option
    kind: str,
    flow: str,
    profile: str,
    name: str | None,
    corpus: str | None,
    settings: tuple[str, ...],
    card: str,
    gpus_per_node: int,
    hours: int | None,
    shared: str | None,
    image: str,
    pool: str | None,
    mirror: str | None,
    output: Path,
) -> None:
    """Write a cluster job for FLOW: an sbatch script, a KubeRay RayJob, a Prefect work pool for
    Kubernetes or a SkyPilot task.

    Nodes, GPUs and hours come from `selfplay plan`. A Dockerfile is also written. Ray spreads the
    engines over the nodes; the flow and its trainer run on the first. Nothing is started: read the
    file, then start it as its first lines say.
    """
    from flows.app.command.plan import configured
    from flows.app.launch.files import files_of_job, write
    from flows.app.launch.job import JobRequest, make_job
    from flows.app.launch.work_pool import files_of_pool
    from flows.plan.hardware import GPUS, Nodes
    from flows.plan.plan import make_plan
    from flows.runtime.request import default_run

    if pool is not None and kind != "kubernetes":
        raise ValueError(f"Prefect has no work pool for {kind}: leave out --work-pool")
    flow, cfg, workload = configured(flow, profile, card, settings)
    if cfg.engine.device != "cuda":
        raise ValueError(f"{flow}/{profile} uses no GPU: `selfplay run` runs it on this machine")
    made = make_plan(cfg, GPUS[card], workload, Nodes(gpus_per_node))
    request = JobRequest(
        flow=flow,
        profile=profile,
        run=name or default_run(flow, profile, corpus),
        gpus_per_node=gpus_per_node,
        corpus=corpus,
        settings=settings,
        hours=hours,
        mirror=mirror,
    )
    job = make_job(request, cfg, made)
    place = shared or (str(Path.cwd() / "data") if kind == "slurm" else "selfplay")
    if pool is not None:
        files = files_of_pool(pool, job, deployment_of(request), image, claim=place)
    else:
        files = files_of_job(kind, job, image, place)
    for path in write(files, output):
        click.echo(f"wrote {path}")
    limit = "about" if pool else "at most"  # a pod of a work pool has no time limit
    click.echo(
        f"{job.num_nodes} node(s) with {job.gpus_per_node} x {job.gpu}, {limit} {job.hours} h"
        " (computed, not measured)"
    )


def deployment_of(request: JobRequest) -> Deployment:
    """A Prefect deployment for the run of a request."""
    from flows.app.command.parameters import find_method, read_settings
    from flows.app.launch.work_pool import Deployment

    play = find_method(request.flow).play
    parameters = {
        "profile": request.profile,
        "run": request.run,
        "overrides": read_settings(request.settings) or None,
        "corpus": request.corpus,
    }
    return Deployment(
        name=request.profile,
        entrypoint=f"{play.__module__}:{play.__name__}.flow",
        parameters={name: value for name, value in parameters.items() if value is not None},
    )
