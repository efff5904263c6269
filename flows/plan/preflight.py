"""Check that a profile fits this machine, before anything is loaded: its plan on GPUs, its processes on CPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from flows.plan.hardware import GPU, GPUS, MIN_DRIVER
from flows.plan.plan import make_plan, updates_of, ways_out
from flows.plan.shapes import UnknownShape
from flows.profile import Comparing, MethodSettings
from tasks.engines.gpus import wrong_build

PROCESSES_A_CORE = 8  # with more they only wait for each other
WAY_OUT = "--set preflight=false starts it anyway"
UNKNOWN_GPU = GPUS["h100-80"]  # for cards of another name: what is judged is their memory
ASKED = "index,uuid,memory.total,driver_version,compute_mode"
SHARED_MEMORY = Path("/dev/shm")
LEAST_SHARED = 1 << 30  # bytes; Docker gives a container 64 MB


@dataclass(frozen=True)
class Machine:
    """GPUs that a run may use, by their memory, the driver's major version, free bytes of the store's disk, bytes of
    the host's memory, and whether a GPU takes one process only."""

    gpus_gib: tuple[float, ...]
    driver: int
    disk_free: int
    memory: int = sys.maxsize
    exclusive: bool = False

    @classmethod
    def here(cls, root: Path) -> Machine | None:
        """None where there is no NVIDIA driver to ask."""
        query = ["nvidia-smi", f"--query-gpu={ASKED}", "--format=csv,noheader,nounits"]
        try:
            said = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        folder = next(folder for folder in (root, *root.parents) if folder.exists())
        found = cls.read(said, os.environ.get("CUDA_VISIBLE_DEVICES"), shutil.disk_usage(folder).free)
        return replace(found, memory=Host.here().memory)

    @classmethod
    def read(cls, said: str, visible: str | None, disk_free: int) -> Machine:
        """From what nvidia-smi says. `visible` names the GPUs that may be used, by number or UUID; None is all.

        Memory that it does not say, that of a MIG slice and of some cards, is not judged.
        """
        lines = [[field.strip() for field in line.split(",")] for line in said.splitlines()]
        cards = [line for line in lines if len(line) == len(ASKED.split(","))]  # the others are warnings
        names = None if visible is None else [name.strip() for name in visible.split(",") if name.strip()]
        used = [card for card in cards if names is None or card[0] in names or any(map(card[1].startswith, names))]
        slices = [UNKNOWN_GPU.memory_gib for name in names or () if name.startswith("MIG-")]
        sizes = [float(card[2]) / 1024 if card[2].isdigit() else UNKNOWN_GPU.memory_gib for card in used]
        drivers = [int(card[3].split(".")[0]) for card in cards]
        exclusive = any(card[4] == "Exclusive_Process" for card in used)
        return cls((*sizes, *slices), min(drivers, default=0), disk_free, exclusive=exclusive)


@dataclass(frozen=True)
class Host:
    """The cores of a machine, and the bytes of its memory."""

    cores: int
    memory: int

    @classmethod
    def here(cls) -> Host:
        return cls(os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_machine(cfg: MethodSettings, root: Path) -> None:
    """Raise ValueError for a profile that this machine cannot run, with all that is wrong and the way out.

    On GPUs, a model whose shape is not known, endpoints, and machines without an NVIDIA driver are not judged.
    """
    if not cfg.preflight:
        return
    problems = [*crowded(cfg, Host.here()), *without_package(cfg)]
    if cfg.engine.device == "cuda" and cfg.engine.kind == "vllm":
        machine = Machine.here(root)
        builds = filter(None, [wrong_build("cuda")])  # of no interest before there is a GPU
        problems += (
            [*builds, *judge(cfg, machine), *without_compiler(), *short_of_shared_memory(cfg)] if machine else []
        )
    if problems:
        raise ValueError("\n  ".join(["this machine cannot run the profile:", *problems, WAY_OUT]))


def crowded(cfg: MethodSettings, host: Host) -> list[str]:
    """More processes than cores can serve and, of engines on CPUs, larger caches than the memory."""
    on_cpus = [each for each in (cfg.engine, cfg.judge_engine) if each and each.device == "cpu" and each.kind == "vllm"]
    processes = {"num_engines": cfg.num_engines, "match.processes": getattr(cfg, "match", Comparing()).processes}
    if on_cpus:
        processes |= {"trainer_processes": cfg.trainer_processes}
        processes |= {f"engine.{name}": getattr(cfg.engine, name) for name in ("threads", "tensor_parallel")}
    most = PROCESSES_A_CORE * host.cores
    found = [
        f"{name} is {count}, and this machine has {host.cores} cores: set it to {most} or less"
        for name, count in processes.items()
        if count > most
    ]
    caches = sum(each.kv_cache_bytes * (cfg.num_engines if each is cfg.engine else 1) for each in on_cpus)
    if caches > host.memory:
        found.append(
            f"the engines' caches need {caches / 1e9:.0f} GB of memory, there are {host.memory / 1e9:.0f}: lower "
            "num_engines or engine.kv_cache_bytes"
        )
    return found


def without_package(cfg: MethodSettings) -> list[str]:
    """Updates whose attention needs a package that the lock does not have."""
    if any(find_spec(name) for name in ("flash_attn", "kernels")):
        return []
    return [
        f'{name}.attention "flash_attention_2" needs the package flash-attn, which is not installed; choose "sdpa"'
        for name, update in updates_of(cfg).items()
        if update.attention == "flash_attention_2"
    ]


def without_compiler() -> list[str]:
    """What Triton lacks: it compiles a small C library when a kernel is first used."""
    scheme = sysconfig.get_default_scheme()
    include = Path(sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme))
    found = []
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        found.append("there is no C compiler, which kernels on GPUs need: install gcc or clang, or set CC")
    if not (include / "Python.h").exists():
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        found.append(f"{include} has no Python.h, which kernels on GPUs need: install {version}-dev")
    return found


def short_of_shared_memory(cfg: MethodSettings) -> list[str]:
    """Processes that work together on several GPUs pass messages through shared memory; without room they crash."""
    together = [cfg.trainer_processes, *(each.tensor_parallel for each in (cfg.engine, cfg.judge_engine) if each)]
    if max(together) == 1 or not SHARED_MEMORY.exists():
        return []
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free >= LEAST_SHARED:
        return []
    return [
        f"{SHARED_MEMORY} has {free / 1e9:.2f} GB free, and processes on several GPUs need {LEAST_SHARED / 1e9:.0f}: "
        "start the container with --ipc=host or --shm-size=16g"
    ]


def judge(cfg: MethodSettings, machine: Machine) -> list[str]:
    """What does not fit on the GPUs, and what would."""
    gpu = card(machine)
    try:
        plan = make_plan(cfg, gpu, cfg.workload())
    except UnknownShape:
        return []
    except ValueError as problem:
        return [str(problem)]
    found = []
    if machine.driver < MIN_DRIVER:
        found.append(f"NVIDIA driver {machine.driver} is too old for CUDA 13: install {MIN_DRIVER} or newer")
    if machine.exclusive and updates_of(cfg):
        found.append(
            "a GPU is in compute mode Exclusive_Process, but engine and trainer are two processes: "
            "`nvidia-smi -c DEFAULT` as root"
        )
    if len(machine.gpus_gib) < plan.num_gpus:
        found.append(
            f"{plan.num_gpus} GPUs are needed, {len(machine.gpus_gib)} may be used (CUDA_VISIBLE_DEVICES): lower "
            "num_engines and trainer_processes, or take a profile for fewer"
        )
    if plan.problems:
        found += [*plan.problems, f"it would fit with: {'; or '.join(ways_out(cfg, gpu)) or 'no single change'}"]
    # A resident trainer keeps only what there is room for.
    host_gb = make_plan(cfg.model_copy(update={"resident_trainer": False}), gpu, cfg.workload()).host_gb
    if machine.memory < 1e9 * host_gb:
        found.append(
            f"an update needs {host_gb:.0f} GB of the host's memory, there are {machine.memory / 1e9:.0f}: lower "
            "trainer_processes and num_engines, or train adapters (a profile named -lora)"
        )
    if machine.disk_free < 1e9 * plan.disk_once_gb:
        found.append(
            f"an update needs {plan.disk_once_gb:.0f} GB of disk, {machine.disk_free / 1e9:.0f} are free: set "
            "SELFPLAY_STORE to a larger disk, or free some by `selfplay clean`"
        )
    return found


def card(machine: Machine) -> GPU:
    """The smallest card's memory; its speed is of no matter here."""
    return replace(
        UNKNOWN_GPU, name=f"{min(machine.gpus_gib, default=0):.0f} GiB", memory_gib=min(machine.gpus_gib, default=0)
    )
