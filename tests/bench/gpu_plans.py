"""The plan of every GPU profile as a table: `python -m tests.bench.gpu_plans` writes
data/bench/gpu-plans.md."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from flows.plan.hardware import GPUS
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


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TABLE.write_text(table(), encoding="utf-8")
    print(table())
