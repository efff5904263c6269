"""The plan of every GPU profile as a table, and of the 8B profiles on eight nodes: `python -m
tests.bench.gpu_plans` writes data/bench/gpu-plans.md and data/bench/node-plans.md."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from flows.plan.hardware import GPUS, Nodes
from flows.plan.plan import Plan, make_plan
from flows.runtime.store_root import SOURCE
from flows.settings import profile
from flows.settings.profile import MethodSettings

TABLE = SOURCE / "data" / "bench" / "gpu-plans.md"
CARDS = ("h100-80", "h200-141")
HEAD = (
    (
        "| profile | GPUs | update, GiB | conversations | fits | host, GB | disk, GB | hours |"
        " GPU-hours | busy |"
    ),
    "|---|---|---|---|---|---|---|---|---|---|",
)


NODES = 8
NODE_TABLE = TABLE.with_name("node-plans.md")
NODE_HEAD = (
    "| profile | trainer on | hours | of one node | times faster | GPU-hours | busy | most time |"
    " hours at 50 GB/s |",
    "|---|---|---|---|---|---|---|---|---|",
)
SLOW_NETWORK = 50.0  # GB/s of a node: one link of 400 Gb/s


def gpu_profiles() -> Iterator[tuple[str, MethodSettings]]:
    for folder in sorted(Path(SOURCE, "flows").glob("*/profiles")):
        config = importlib.import_module(f"flows.{folder.parent.name}.config").Config
        for name in profile.names(folder) if issubclass(config, MethodSettings) else ():
            cfg = profile.load(config, name)
            if cfg.engine.device == "cuda":
                yield f"{folder.parent.name}/{name}", cfg


def rows() -> Iterator[str]:
    """Plans for 80 GB cards and, if a profile does not fit there, for 141 GB cards."""
    for name, cfg in gpu_profiles():
        for card in CARDS:
            plan = make_plan(cfg, GPUS[card], cfg.workload())
            yield _row(name, plan)
            if plan.verdict != "no":
                break


def _row(name: str, plan: Plan) -> str:
    update = max((update.needed for update in plan.updates.values()), default=0.0)
    hours = plan.hours or 0.0
    cells = (
        name,
        f"{plan.num_gpus} {plan.gpu.name}",
        f"{update:.1f}",
        f"{plan.engine.conversations:.0f}",
        plan.verdict,
        f"{plan.host_gb:.0f}",
        f"{plan.disk_gb:.0f}",
        f"{hours:.1f}",
        f"{hours * plan.num_gpus:.0f}",
        f"{plan.busy:.0%}",
    )
    return f"| {' | '.join(cells)} |"


def table() -> str:
    return "\n".join([*HEAD, *rows()]) + "\n"


def node_rows() -> Iterator[str]:
    """Plans of the profiles of 7B to 8B for several GPUs on eight nodes of eight H100, with the
    trainer on one of them and on all."""
    for name, cfg in gpu_profiles():
        is_8b = any(size in name for size in ("8b", "7b"))
        if not is_8b or cfg.num_engines * cfg.engine.tensor_parallel < 4:
            continue
        one_node = make_plan(cfg, GPUS["h100-80"], cfg.workload(), Nodes())
        for num_training in (1, NODES):
            yield _node_row(name, cfg, num_training, one_node.hours or 0.0)


def _node_row(name: str, cfg: MethodSettings, num_training: int, hours_of_one: float) -> str:
    of_node = Nodes().num_gpus
    spread = cfg.model_copy(
        update={
            "num_engines": NODES * of_node // cfg.engine.tensor_parallel,
            "trainer_processes": num_training * of_node,
            "trainer_place": "ray",
            "engine": cfg.engine.model_copy(update={"place": "ray"}),
        }
    )
    card = GPUS["h100-80"]
    plan = make_plan(spread, card, spread.workload(), Nodes())
    slow = make_plan(spread, card, spread.workload(), Nodes(of_node, SLOW_NETWORK))
    hours = plan.hours or 0.0
    spent = plan.spent or {}
    most = max(spent.values(), key=lambda duration: duration.seconds)
    cells = (
        name,
        f"{num_training} node{'s' if num_training > 1 else ''}",
        f"{hours:.1f}",
        f"{hours_of_one:.1f}",
        f"{hours_of_one / hours:.1f}",
        f"{hours * plan.num_gpus:.0f}",
        f"{plan.busy:.0%}",
        f"{most.kind}, {most.seconds / 3600 / hours:.0%}",
        f"{slow.hours or 0.0:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def node_table() -> str:
    return "\n".join([*NODE_HEAD, *node_rows()]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TABLE.write_text(table(), encoding="utf-8")
    NODE_TABLE.write_text(node_table(), encoding="utf-8")
    print(table(), node_table(), sep="\n")
