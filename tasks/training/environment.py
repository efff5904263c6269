"""The environment of the trainer's processes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tasks.engines.child import PROJECT
from tasks.processes.child_process import parent_variables

TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK")


def member_environment(
    device: str, threads: int, num_processes: int, gpus: Sequence[str] | None = None
) -> dict[str, str]:
    """The environment of a trainer process on the machine that calls this function.

    `gpus` are the GPUs that the process may see; None leaves that setting as it is.
    """
    return (
        inherited(os.environ)
        | parent_variables()
        | own_variables(device, threads, num_processes, gpus)
    )


def own_variables(
    device: str, threads: int, num_processes: int, gpus: Sequence[str] | None = None
) -> dict[str, str]:
    """The variables that the trainer sets itself.

    Expandable segments are on because rows differ in length, and fixed blocks freed by one row
    would not fit the next. An allocator setting already in the environment takes precedence.
    """
    path = os.pathsep.join([str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])])
    if device == "cpu":
        return {
            "PYTHONPATH": path,
            "ACCELERATE_USE_CPU": "true",
            "OMP_NUM_THREADS": str(threads),
        }
    cores = len(os.sched_getaffinity(0)) // num_processes
    former = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    variables = {
        "PYTHONPATH": path,
        "PYTORCH_ALLOC_CONF": os.environ.get("PYTORCH_ALLOC_CONF", former),
        "OMP_NUM_THREADS": str(max(cores, 1)),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # GPUs are numbered as in nvidia-smi
    }
    if gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return variables


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without torchrun's variables.

    A cluster may have set them, and a single process would then wait for others.

    >>> inherited({"WORLD_SIZE": "16", "RANK": "3", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in TORCHRUN}
