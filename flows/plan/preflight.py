"""Check that a profile fits this machine before anything is loaded.

On GPUs, this checks its plan; on CPUs, the number of its processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

from flows.plan.cluster import cluster_problems
from flows.plan.hardware import GPU, GPUS, MIN_DRIVER, OVERHEADS
from flows.plan.plan import gpus_here, make_plan, trainers_here, updates_of, ways_out
from flows.plan.shapes import UnknownShape
from flows.runtime.store_root import IN_CHECKOUT
from flows.settings.profile import Comparing, MethodSettings, Settings
from tasks.engines.gpus import wrong_build
from tasks.processes.host_memory import host_memory

MODEL_PACKAGES = ("peft", "torch", "trl", "vllm")  # the rest of the extras comes with these
PROCESSES_PER_CORE = 8  # more processes would only wait for each other
WAY_OUT = "--set preflight=false starts it anyway"
UNKNOWN_GPU = GPUS["h100-80"]  # stands for any card; only its memory matters here
FIELDS = "index,uuid,memory.total,driver_version,compute_mode,memory.free,memory.used"
# how long engines of a killed flow may take to end
BUSY_S = 20.0
POLL_S = 2.0
SHARED_MEMORY = Path("/dev/shm")
LEAST_SHARED = 1 << 30  # bytes; Docker gives a container 64 MB


@dataclass(frozen=True)
class Card:
    """A GPU and its memory in GiB."""

    name: str  # its index
    free: float
    usable: float  # available to a program if no other ran


@dataclass(frozen=True)
class Machine:
    """A machine with GPUs."""

    gpus_gib: tuple[float, ...]  # memory of each GPU that a run may use
    driver: int  # major version
    disk_free: int  # bytes on the store's disk
    memory: int = sys.maxsize  # bytes of host memory
    exclusive: bool = False  # whether any GPU admits only one process
    cards: tuple[Card | None, ...] = ()  # the free memory of each GPU; None: unknown

    @classmethod
    def here(cls, root: Path) -> Machine | None:
        """This machine; None without an NVIDIA driver."""
        query = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits"]
        try:
            output = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        folder = next(folder for folder in (root, *root.parents) if folder.exists())
        machine = cls.read(
            output, os.environ.get("CUDA_VISIBLE_DEVICES"), shutil.disk_usage(folder).free
        )
        return replace(machine, memory=Host.here().memory)

    @classmethod
    def read(cls, output: str, visible: str | None, disk_free: int) -> Machine:
        """Parse the output of nvidia-smi.

        `visible` lists the GPUs that may be used, by number or UUID; None means all. Memory that is
        not reported (for MIG slices and some cards) is assumed to be that of `UNKNOWN_GPU`.
        """
        lines = [[field.strip() for field in line.split(",")] for line in output.splitlines()]
        # other lines are warnings
        cards = [line for line in lines if len(line) == len(FIELDS.split(","))]
        names = [card[0] for card in cards]
        if visible is not None:
            names = [name.strip() for name in visible.split(",") if name.strip()]
        used = [
            card for name in names for card in cards if card[0] == name or card[1].startswith(name)
        ]
        slices = [UNKNOWN_GPU.memory_gib for name in names if name.startswith("MIG-")]
        sizes = [_memory_gib(card[2]) for card in used]
        drivers = [int(card[3].split(".")[0]) for card in cards]
        exclusive = any(card[4] == "Exclusive_Process" for card in used)
        free: tuple[Card | None, ...] = ()
        if not slices:
            free = tuple(map(_card, used))
        return cls(
            gpus_gib=(*sizes, *slices),
            driver=min(drivers, default=0),
            disk_free=disk_free,
            exclusive=exclusive,
            cards=free,
        )


def _memory_gib(mib: str) -> float:
    """The GiB in a field of nvidia-smi, which is a number of MiB or text like [N/A]."""
    if mib.isdigit():
        return float(mib) / 1024
    return UNKNOWN_GPU.memory_gib


def _card(fields: list[str]) -> Card | None:
    if not (fields[5].isdigit() and fields[6].isdigit()):
        return None
    free = int(fields[5]) / 1024
    used = int(fields[6]) / 1024
    return Card(fields[0], free, free + used)


@dataclass(frozen=True)
class Host:
    """The cores and the memory, in bytes, that this process may use."""

    cores: int
    memory: int

    @classmethod
    def here(cls) -> Host:
        """The cores and the memory that this process may use."""
        return cls(len(os.sched_getaffinity(0)), host_memory().total)


def check_packages(cfg: Settings) -> None:
    """Raise ValueError if a package needed for sampling or training is not installed."""
    if not isinstance(cfg, MethodSettings):
        return
    # search the path: a process that plays flows hides some packages from its own imports
    missing = [name for name in MODEL_PACKAGES if PathFinder.find_spec(name) is None]
    if not missing:
        return
    # plain pip would fetch torch's GPU build, which vLLM's CPU build cannot load
    advice = (
        "`uv pip install --torch-backend=cpu 'selfplay-flows[cpu]'`, or `pip install"
        " 'selfplay-flows[gpu]'` for NVIDIA GPUs"
    )
    if IN_CHECKOUT:
        advice = "`make install`, or `make install-gpu` for NVIDIA GPUs"
    raise ValueError(
        f"sampling and training need {', '.join(missing)}, which is not installed: {advice}"
    )


def check_machine(cfg: MethodSettings, root: Path, loads: bool = False) -> None:
    """Raise ValueError for a profile that this machine cannot run.

    The error lists every problem, and the way out. GPUs are not checked for a model of unknown
    shape, for an endpoint, or without an NVIDIA driver. If the run `loads` its models now, also
    raises ValueError for GPUs whose memory other processes use and for nodes of the cluster that
    cannot run what is placed there, and RuntimeError if no cluster answers.
    """
    if not cfg.preflight:
        return
    problems = [*crowded(cfg, Host.here()), *without_package(cfg)]
    if loads and cfg.engine.kind == "vllm":
        problems += read_only_shared_memory()
    if cfg.engine.device == "cuda" and cfg.engine.kind == "vllm":
        machine = Machine.here(root)
        if machine:
            if build := wrong_build("cuda"):
                problems.append(build)
            problems += gpu_problems(cfg, machine)
            problems += without_compiler()
            problems += short_of_shared_memory(cfg)
        if loads and not problems:
            problems += _still_busy(cfg, root)
    if problems:
        raise ValueError("\n  ".join(["this machine cannot run the profile:", *problems, WAY_OUT]))
    if loads:
        problems = cluster_problems(cfg, root)
    if problems:
        raise ValueError("\n  ".join(["the cluster cannot run the profile:", *problems, WAY_OUT]))


def crowded(cfg: MethodSettings, host: Host) -> list[str]:
    """Problems if there are too many processes for the cores, or caches exceed the host's
    memory."""
    on_cpus = [
        each
        for each in (cfg.engine, cfg.judge_engine)
        if each and each.device == "cpu" and each.kind == "vllm" and each.place == "local"
    ]
    processes = {
        "num_engines": cfg.num_engines if cfg.engine.place == "local" else 0,
        "match.processes": getattr(cfg, "match", Comparing()).processes,
    }
    if on_cpus:
        processes |= {"trainer_processes": trainers_here(cfg)}
        processes |= {
            "engine.threads": cfg.engine.threads,
            "engine.tensor_parallel": cfg.engine.tensor_parallel,
        }
    most = PROCESSES_PER_CORE * host.cores
    problems = [
        f"{name} is {count}, and this machine has {host.cores} cores: set it to {most} or less"
        for name, count in processes.items()
        if count > most
    ]
    caches = sum(each.kv_cache_bytes for each in on_cpus)
    if cfg.engine in on_cpus:
        caches += (cfg.num_engines - 1) * cfg.engine.kv_cache_bytes
    if caches > host.memory:
        problems.append(
            f"the engines' caches need {caches / 1e9:.0f} GB of memory, there are"
            f" {host.memory / 1e9:.0f}: lower num_engines or engine.kv_cache_bytes"
        )
    return problems


def without_package(cfg: MethodSettings) -> list[str]:
    """Problems if an update's attention needs a package that is not installed, as it is not in the
    lock."""
    if any(find_spec(name) for name in ("flash_attn", "kernels")):
        return []
    return [
        f'{name}.attention "flash_attention_2" needs the package flash-attn, which is not'
        ' installed; choose "sdpa"'
        for name, update in updates_of(cfg).items()
        if update.attention == "flash_attention_2"
    ]


def without_compiler() -> list[str]:
    """Problems for Triton, which compiles a small C library when a kernel is first used."""
    scheme = sysconfig.get_default_scheme()
    include = Path(
        sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    )
    problems = []
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        problems.append(
            "there is no C compiler, which kernels on GPUs need: install gcc or clang, or set CC"
        )
    if not (include / "Python.h").exists():
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        problems.append(
            f"{include} has no Python.h, which kernels on GPUs need: install {version}-dev"
        )
    return problems


def read_only_shared_memory() -> list[str]:
    """Problems if shared memory is read-only: every engine writes to it."""
    if not SHARED_MEMORY.exists() or os.access(SHARED_MEMORY, os.W_OK):
        return []
    return [
        f"{SHARED_MEMORY} is read-only, and an engine writes to it: mount it writable, in a"
        " container with --tmpfs /dev/shm"
    ]


def short_of_shared_memory(cfg: MethodSettings) -> list[str]:
    """Problems if there is too little shared memory.

    Processes that work together on several GPUs pass messages through it, and crash if it is full.
    """
    together = max(trainers_here(cfg), cfg.engine.tensor_parallel)
    if cfg.judge_engine:
        together = max(together, cfg.judge_engine.tensor_parallel)
    if together == 1 or not SHARED_MEMORY.exists():
        return []
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free >= LEAST_SHARED:
        return []
    return [
        f"{SHARED_MEMORY} has {free / 1e9:.2f} GB free, and processes on several GPUs need"
        f" {LEAST_SHARED / 1e9:.0f}: start the container with --ipc=host or --shm-size=16g"
    ]


def gpu_problems(cfg: MethodSettings, machine: Machine) -> list[str]:
    """Problems with the machine's GPUs, host memory and disk, and what would fit.

    Reports none for a model of unknown shape.
    """
    gpu = card(machine)
    try:
        plan = make_plan(cfg, gpu, cfg.workload())
    except UnknownShape:
        return []
    except ValueError as problem:
        return [str(problem)]
    problems = []
    if machine.driver < MIN_DRIVER:
        problems.append(
            f"NVIDIA driver {machine.driver} is too old for CUDA 13: install {MIN_DRIVER} or newer"
        )
    if machine.exclusive and updates_of(cfg):
        problems.append(
            "a GPU is in compute mode Exclusive_Process, but engine and trainer are two processes: "
            "`nvidia-smi -c DEFAULT` as root"
        )
    needed = gpus_here(cfg)
    if len(machine.gpus_gib) < needed:
        problems.append(
            f"{needed} GPUs are needed, {len(machine.gpus_gib)} may be used"
            " (CUDA_VISIBLE_DEVICES): lower num_engines and trainer_processes, or take a profile"
            " for fewer"
        )
    if plan.problems:
        problems += [
            *plan.problems,
            f"it would fit with: {'; or '.join(ways_out(cfg, gpu)) or 'no single change'}",
        ]
    # A resident trainer keeps only as much as fits, so plan without it.
    host_gb = make_plan(
        cfg.model_copy(update={"resident_trainer": False}), gpu, cfg.workload()
    ).host_gb
    if machine.memory < 1e9 * host_gb:
        problems.append(
            f"an update needs {host_gb:.0f} GB of the host's memory, there are"
            f" {machine.memory / 1e9:.0f}: lower trainer_processes and num_engines, or train"
            " adapters (a profile named -lora)"
        )
    if machine.memory < 1e9 * plan.rollouts_gb:
        problems.append(
            f"the rollouts of one stage take {plan.rollouts_gb:.0f} GB of the host's memory, there"
            f" are {machine.memory / 1e9:.0f}: sample fewer at once (fewer candidates or answers)"
        )
    if machine.disk_free < 1e9 * plan.disk_once_gb:
        problems.append(
            f"an update needs {plan.disk_once_gb:.0f} GB of disk, {machine.disk_free / 1e9:.0f} are"
            " free: set SELFPLAY_STORE to a larger disk, or free some by `selfplay clean`"
        )
    return problems


def _still_busy(cfg: MethodSettings, root: Path) -> list[str]:
    """The problems that `busy` reports once engines that are shutting down have had time to end."""
    until = time.monotonic() + BUSY_S
    while machine := Machine.here(root):
        if not (problems := busy(cfg, machine)) or time.monotonic() > until:
            return problems
        time.sleep(POLL_S)
    return []


def busy(cfg: MethodSettings, machine: Machine) -> list[str]:
    """Problems if a GPU has too little free memory for what the run loads on it: an engine's share
    of the memory, or an update."""
    try:
        updates = make_plan(cfg, card(machine)).updates.values()
    except ValueError:  # an unknown shape
        updates = ()
    trained = max((update.needed for update in updates), default=0.0)
    shares = _shares(cfg)
    problems = []
    num_trainers = trainers_here(cfg)
    for number, each in enumerate(machine.cards[: max(len(shares), num_trainers)]):
        if each is None:
            continue
        needed = 0.0
        if number < len(shares):
            needed = shares[number] * each.usable + OVERHEADS.context
        if number < num_trainers:
            needed = max(needed, trained)
        if each.free < needed:
            problems.append(
                f"GPU {each.name} has {each.free:.1f} GiB free, and the run needs {needed:.1f}"
            )
    if problems:
        problems.append(
            "another process uses it, which `nvidia-smi` shows: end that process, name other GPUs"
            " in CUDA_VISIBLE_DEVICES, or lower engine.gpu_memory_utilization"
        )
    return problems


def _shares(cfg: MethodSettings) -> list[float]:
    """The share of each GPU's memory that engines take: first the players', then the judge's."""
    shares = list[float]()
    if cfg.engine.place == "local":
        shares += cfg.num_engines * cfg.engine.tensor_parallel * [cfg.engine.gpu_memory_utilization]
    if (judge := cfg.judge_engine) and judge.kind == "vllm" and judge.place == "local":
        shares += -len(shares) % judge.tensor_parallel * [0.0]
        shares += judge.tensor_parallel * [judge.gpu_memory_utilization]
    return shares


def card(machine: Machine) -> GPU:
    """A card with the memory of the machine's smallest; its speed does not matter here."""
    return replace(
        UNKNOWN_GPU,
        name=f"{min(machine.gpus_gib, default=0):.0f} GiB",
        memory_gib=min(machine.gpus_gib, default=0),
    )
