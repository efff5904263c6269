"""What a run needs from a cluster: nodes, GPUs, hours and the command, from its plan."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flows.plan.plan import Plan
    from flows.settings.profile import MethodSettings

SPARE_HOURS = 1.3  # safety factor: the plan is computed, not measured


@dataclass(frozen=True)
class Job:
    """A run on nodes with equal numbers of GPUs.

    The flow runs on the first node, and so does a trainer that fits there.
    """

    flow: str
    run: str
    num_nodes: int
    gpus_per_node: int
    gpu: str  # its name in `selfplay plan`
    hours: int
    host_gb: int  # host memory of the first node
    command: str  # one line of shell
    push: str | None  # one line of shell that runs afterwards

    @property
    def time(self) -> str:
        """The time limit in Slurm's format.

        >>> Job("f", "r", 1, 8, "h100-80", 30, 100, "", None).time
        '1-06:00:00'
        """
        days, hours = divmod(self.hours, 24)
        return f"{days}-{hours:02d}:00:00"

    @property
    def entrypoint(self) -> str:
        """The run, then the push, as one command."""
        script = " && ".join(line for line in (self.command, self.push) if line)
        return shlex.join(["bash", "-euo", "pipefail", "-c", script])

    @property
    def label(self) -> str:
        """The run's name in a form that Kubernetes and SkyPilot allow.

        >>> Job("f", "My_run.1", 1, 8, "h100-80", 1, 1, "", None).label
        'selfplay-my-run-1'
        """
        letters = (c if c.isascii() and c.isalnum() else "-" for c in self.run.lower())
        return f"selfplay-{''.join(letters)}"[:50].rstrip("-")


@dataclass(frozen=True)
class JobRequest:
    """What the user asks for besides the profile."""

    flow: str
    profile: str
    run: str
    gpus_per_node: int
    corpus: str | None = None
    settings: tuple[str, ...] = ()
    hours: int | None = None
    mirror: str | None = None


def make_job(request: JobRequest, cfg: MethodSettings, plan: Plan) -> Job:
    """The job for a configuration and its plan.

    Raises ValueError if an engine or the trainer does not fit on the nodes, if the plan does not
    fit its GPUs, or if the hours are unknown.
    """
    if plan.problems:
        raise ValueError(
            f"it does not fit on {plan.gpu.name}: {'; '.join(plan.problems)}. `selfplay plan` says"
            " what would"
        )
    num_nodes = nodes_of(cfg, request.gpus_per_node)
    hours = request.hours
    if hours is None:
        if plan.hours is None:
            raise ValueError("the method has no workload to compute hours from: give --hours")
        hours = max(1, math.ceil(SPARE_HOURS * plan.hours * cfg.iterations))
    words = ["selfplay", "run", request.flow, "--profile", request.profile, "--run", request.run]
    if request.corpus is not None:
        words += ["--corpus", request.corpus]
    settings = list(request.settings)
    if num_nodes > 1:
        settings.append("engine.place=ray")
        if cfg.judge_engine is not None and cfg.judge_engine.kind == "vllm":
            settings.append("judge_engine.place=ray")
        if cfg.trainer_processes > request.gpus_per_node and cfg.trainer_place == "local":
            settings.append("trainer_place=ray")
    for setting in settings:
        words += ["--set", setting]
    push = None
    if request.mirror is not None:
        push = shlex.join(["selfplay", "push", request.run, request.mirror, "--weights"])
    return Job(
        flow=request.flow,
        run=request.run,
        num_nodes=num_nodes,
        # a run on one node may need fewer
        gpus_per_node=request.gpus_per_node if num_nodes > 1 else plan.num_gpus,
        gpu=plan.gpu.name,
        hours=hours,
        host_gb=math.ceil(1.1 * plan.host_gb),
        command=shlex.join([*words, "--here"]),
        push=push,
    )


def nodes_of(cfg: MethodSettings, gpus_per_node: int) -> int:
    """The number of nodes that hold all engines; the trainer takes turns with the players' engines.

    An engine's GPUs are on one node. Raises ValueError if an engine needs more GPUs than a node
    has, or if the trainer needs more than both a node and the players' engines have.
    """
    sizes = cfg.num_engines * [cfg.engine.tensor_parallel]
    taking_turns = sum(sizes)
    if cfg.judge_engine is not None and cfg.judge_engine.kind == "vllm":
        sizes.append(cfg.judge_engine.tensor_parallel)
    if max(sizes) > gpus_per_node:
        raise ValueError(
            f"an engine needs {max(sizes)} GPUs of one node, and a node has {gpus_per_node}: raise"
            " --gpus-per-node, or lower engine.tensor_parallel"
        )
    if cfg.trainer_processes > max(gpus_per_node, taking_turns):
        raise ValueError(
            f"the trainer needs {cfg.trainer_processes} GPUs, a node has {gpus_per_node}, and the"
            f" engines have {taking_turns}: raise num_engines, or lower trainer_processes"
        )
    free = list[int]()
    for size in sorted(sizes, reverse=True):
        node = next((number for number, left in enumerate(free) if left >= size), None)
        if node is None:
            free.append(gpus_per_node)
            node = len(free) - 1
        free[node] -= size
    return len(free)
