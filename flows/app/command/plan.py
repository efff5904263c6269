"""`selfplay plan`: estimate the memory and hours that a profile needs, and its GPUs and disk."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from flows.app.command.screen import print_prose
from flows.app.command.tables import print_table
from tasks.reports.percent import percent

if TYPE_CHECKING:
    from flows.plan.cpu import CPUPlan
    from flows.plan.engine import EngineMemory
    from flows.plan.plan import Plan
    from flows.plan.trainer import UpdateMemory
    from flows.settings.profile import MethodSettings
    from flows.settings.workload import Workload

DEFAULT_GPU = "h100-80"


@click.command()
@click.argument("flow")
@click.option("--profile", required=True, help="A profile of FLOW.")
@click.option(
    "--gpu", "card", default=DEFAULT_GPU, show_default=True, help="GPU model, e.g. h200-141."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting, e.g. num_engines=4.",
)
@click.option(
    "--gpus-per-node", default=8, show_default=True, type=click.IntRange(1), help="GPUs per node."
)
@click.option(
    "--network",
    default=400.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    help="Bandwidth between a node and all others, in GB/s (a link of 400 Gb/s gives 50).",
)
@click.option(
    "--price-per-gpu-hour", "price", type=click.FloatRange(0), help="Also print the cost."
)
@click.option("--like", metavar="RUN", help="Use the lengths of this run's conversations.")
def plan(
    flow: str,
    profile: str,
    card: str,
    settings: tuple[str, ...],
    like: str | None,
    gpus_per_node: int,
    network: float,
    price: float | None,
) -> None:
    """Estimate memory, disk, hours and GPU-hours of FLOW with a profile.

    Says what to change if it does not fit. Everything is computed from the model's shape, the
    profile's numbers and assumed rates; nothing is measured, and no model is loaded. Exits with 1
    if it does not fit.
    """
    from flows.plan.cpu import plan_on_cpus
    from flows.plan.hardware import GPUS, Nodes
    from flows.plan.plan import make_plan, ways_out
    from flows.runtime.store_root import in_workspace

    flow, cfg, workload = configured(flow, profile, card, settings, like)
    if cfg.engine.device != "cuda":
        with in_workspace():  # paths in profiles are relative to it
            print_cpus(f"{flow}/{profile}", plan_on_cpus(cfg, workload), cfg.iterations)
        return
    made = make_plan(cfg, GPUS[card], workload, Nodes(gpus_per_node, network))
    print_prose(f"{flow}/{profile} on {made.num_gpus} x {card}, computed, not measured")
    print_table(memory_rows(made), "memory of each GPU")
    print_prose(
        f"host: {made.host_gb:,.0f} GB of memory while an update begins,"
        f" {made.rollouts_gb:,.1f} GB for the rollouts of the largest stage; disk:"
        f" {made.disk_once_gb:,.0f} GB while it is written, {made.disk_gb:,.0f} GB over the run\n"
    )
    print_hours(made, cfg.iterations)
    print_nodes(made, cfg, gpus_per_node)
    if price is not None:
        print_price(made, cfg.iterations, price)
    if made.verdict == "tight":
        print_prose(
            "tight: an update leaves less than 10% of the GPU's memory, which fragmentation may use"
            " up: test it first"
        )
    if made.problems:
        for line in ("does not fit:", *made.problems, "it would fit with one of:"):
            print_prose(line)
        for line in ways_out(cfg, made.gpu):
            print_prose(line)
        sys.exit(1)


def configured(
    flow: str, profile: str, card: str, settings: tuple[str, ...], like: str | None = None
) -> tuple[str, MethodSettings, Workload | None]:
    """The flow's name, its configuration, and its workload, with lengths as in the run `like`.

    Raises ValueError for an unknown GPU, or for a flow that neither samples nor trains.
    """
    from flows.app.command.parameters import find_deployment, find_flow, find_method, read_settings
    from flows.plan.hardware import GPUS
    from flows.plan.measured import measured_lengths
    from flows.runtime.store_root import existing_store
    from flows.settings import profile as profiles

    if card not in GPUS:
        raise ValueError(f"no GPU {card!r}; there are {', '.join(GPUS)}")
    flow = find_flow(flow)
    find_deployment(flow, profile)
    config = find_method(flow).config
    if not issubclass(config, profiles.MethodSettings):
        raise ValueError(f"{flow} neither samples nor trains: there is nothing to plan")
    cfg = profiles.load(config, profile, read_settings(settings))
    workload = cfg.workload()
    if like and workload:
        workload = workload.at(measured_lengths(existing_store(), like))
    return flow, cfg, workload


def print_nodes(made: Plan, cfg: MethodSettings, gpus_per_node: int) -> None:
    """Print how many nodes the run needs, and how much data crosses the network between them."""
    from flows.app.launch.job import nodes_of
    from flows.plan.plan import network_gb

    try:
        num_nodes = nodes_of(cfg, gpus_per_node)
    except ValueError as problem:
        print_prose(f"nodes: {problem}")
        return
    if num_nodes == 1:
        print_prose(f"nodes: 1 with {made.num_gpus} GPUs")
        return
    num_training = min(num_nodes, math.ceil(cfg.trainer_processes / gpus_per_node))
    trainer = "the trainer on one"
    if num_training > 1:
        trainer = f"the trainer on {num_training}"
    told = f"nodes: {num_nodes} with {gpus_per_node} GPUs, engines on all, {trainer}"
    crossing = network_gb(cfg, num_nodes)
    if crossing is not None:
        told += f"; engines of other nodes read {crossing:,.1f} GB of weights in an iteration"
    print_prose(told)


def print_price(made: Plan, iterations: int, price: float) -> None:
    """Print the cost of an iteration and of a run of `iterations`, at `price` per GPU-hour."""
    if made.hours is None:
        print_prose("the cost cannot be computed: the method's Config has no workload()")
        return
    each = made.hours * made.num_gpus * price
    print_prose(
        f"money, at {price:g} a GPU-hour: {each:,.0f} an iteration, {each * iterations:,.0f} the"
        " run"
    )


def print_cpus(name: str, made: CPUPlan, iterations: int) -> None:
    """Print the plan of the profile `name` on CPUs: memory, cache and CPU-hours."""
    print_prose(f"{name} on CPUs, computed from a few measurements")
    rows = [{"of": part, "GB": f"{size:.1f}"} for part, size in made.memory_gb.items()]
    print_table(rows, "memory, if all are loaded at once")
    print_prose(
        f"{made.total_gb:.1f} GB in all; contexts of {made.context:,} tokens"
        + (f" (the model has {made.positions:,} positions)" if made.positions else "")
        + f"; an engine's cache holds {made.cache_tokens:,} tokens"
    )
    if made.hours is None:
        print_prose("the hours cannot be computed: the method's Config has no workload()")
        return
    rows = [{"what": what, "CPU-hours": f"{hours:.2f}"} for what, hours in made.hours.items()]
    print_table(rows, f"an iteration, of {iterations}; held-out scores come on top")
    print_prose(
        "CPU-hours are for one core without matrix instructions, accurate within a factor of two,"
        " for replies as long as the profile allows; --like RUN uses the lengths of RUN's replies"
    )


def memory_rows(made: Plan) -> list[dict[str, Any]]:
    """One row per engine and per update: its GiB on a GPU, whether it fits, and its parts."""
    engines = {"engine": made.engine, "judge_engine": made.judge}
    rows = [_engine_row(name, engine, made) for name, engine in engines.items() if engine]
    return rows + [_update_row(name, update, made) for name, update in made.updates.items()]


def _engine_row(name: str, engine: EngineMemory, made: Plan) -> dict[str, Any]:
    parts = {
        "weights": engine.weights,
        "adapters": engine.adapters,
        "working": engine.working,
        "cache": engine.cache,
    }
    room = (
        f"{engine.cache_tokens:,} tokens: {engine.conversations:.1f} conversations of"
        f" {engine.context:,}"
    )
    return {
        "of": name,
        "GiB": f"{engine.needed:.1f} of {made.gpu.memory_gib}",
        "fits": _yes_or_no(engine.fits(made.gpu)),
        "parts": _parts(parts),
        "remarks": f"cache of an engine: {room}",
    }


def _update_row(name: str, update: UpdateMemory, made: Plan) -> dict[str, Any]:
    return {
        "of": name,
        "GiB": f"{update.needed:.1f} of {made.gpu.memory_gib}",
        "fits": _yes_or_no(update.fits(made.gpu)),
        "parts": _parts({**update.kinds, "beside tensors": update.needed - update.tensors}),
        "remarks": (
            f"in rows of {update.tokens:,} tokens; tensors by phase: {_parts(update.phases)}"
        ),
    }


def _yes_or_no(value: bool) -> str:
    if value:
        return "yes"
    return "no"


def _parts(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {size:.1f}" for name, size in parts.items() if size >= 0.05)


def print_hours(made: Plan, iterations: int) -> None:
    """Print the hours of an iteration by kind, and the hours of a run of `iterations`."""
    if made.spent is None or made.hours is None:
        print_prose("the hours cannot be computed: the method's Config has no workload()")
        return
    total = sum(spent.seconds for spent in made.spent.values())
    rows = [
        {
            "what": spent.kind,
            "hours": f"{spent.seconds / 3600:.2f}",
            "share": percent(spent.seconds, total),
            "GPUs busy": percent(spent.busy, spent.seconds) if spent.seconds else "",
        }
        for spent in made.spent.values()
    ]
    print_table(rows, "hours of an iteration")
    hours = made.hours * made.num_gpus
    print_prose(
        f"an iteration: {made.hours:.1f} h, {hours:,.0f} GPU-hours, busy {percent(made.busy)};"
        f" the run's {iterations}: {made.hours * iterations:,.0f} h,"
        f" {hours * iterations:,.0f} GPU-hours"
    )
