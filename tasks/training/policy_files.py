"""Write a trained policy's files in the form that engines load."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter, defaultdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import safe_open
from torch.distributed.tensor import DTensor

from tasks.training.grpo import FILE_SIZE

KEPT_FILES = (
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
)
LAYER = re.compile(r"(.*\.layers\.\d+)\.")
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Tensors = dict[str, torch.Tensor]


def write_whole(model: Any, folder: Path, dtype: torch.dtype | None) -> None:
    """Write a model or an adapter that this process holds whole, rounded to `dtype` if given."""
    weights = None
    if dtype:
        weights = _whole_weights(model, dtype)
    model.save_pretrained(folder, state_dict=weights, max_shard_size=FILE_SIZE)


def write_sharded(model: Any, folder: Path, dtype: torch.dtype, accelerator: Accelerator) -> None:
    """Write a model whose weights are sharded, rounded to `dtype`; all processes take part.

    Each process gathers and writes some layers, but never part of one: saving may merge a layer's
    weights under other names. Raises OSError if fewer bytes were written than the weights have.
    """
    rank = accelerator.process_index
    owners = _owners(model, dtype, accelerator.num_processes)
    own_names = {name for name, owner in owners.items() if owner == rank}
    own_weights = _whole_weights(model, dtype, own_names)
    if own_weights:
        _write_part(model, folder / f"part-{rank:05d}", own_weights)
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        _merge(folder)


def _write_part(model: Any, folder: Path, weights: Tensors) -> None:
    # by default only the first process writes
    model.should_save_on_this_rank = lambda is_main_process: True
    try:
        num_bytes = sum({id(value): value.nbytes for value in weights.values()}.values())
        model.save_pretrained(folder, state_dict=dict(weights), max_shard_size=FILE_SIZE)
    finally:
        del model.should_save_on_this_rank
    written = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if written < num_bytes:
        raise OSError(f"{folder}: {written} bytes were written of a policy's {num_bytes}")


def _whole_weights(
    model: torch.nn.Module, dtype: torch.dtype, kept: set[str] | None = None
) -> Tensors:
    """A model's weights, or only those in `kept`, rounded; tied weights stay one tensor.

    If they are sharded, all processes take part.
    """
    weights = Tensors()
    by_id = dict[int, torch.Tensor]()
    for name, value in model.state_dict(keep_vars=True).items():
        is_kept = kept is None or name in kept
        if id(value) not in by_id:
            whole = value.detach()
            if whole.is_floating_point():
                whole = whole.to(dtype)
            if isinstance(whole, DTensor):
                whole = whole.full_tensor()
            by_id[id(value)] = whole.cpu() if is_kept else whole.new_empty(0)
        if is_kept:
            weights[name] = by_id[id(value)]
    return weights


def _owners(model: torch.nn.Module, dtype: torch.dtype, num_ranks: int) -> dict[str, int]:
    """Which process writes each weight.

    The processes get about equal bytes; tied weights, and the weights of a layer, stay together. A
    model that fits into one file is written by the first process.
    """
    parts: defaultdict[str, list[str]] = defaultdict(list)
    sizes: Counter[str] = Counter()
    part_of: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        is_new = id(value) not in part_of
        if is_new:
            layer = LAYER.match(name)
            part_of[id(value)] = layer[1] if layer else name
        part = part_of[id(value)]
        parts[part].append(name)
        # add even 0, so that `sizes` has the order of `parts`
        sizes[part] += value.numel() * dtype.itemsize if is_new else 0
    total = sizes.total()
    if total < FILE_SIZE:
        num_ranks = 1
    before = [0, *accumulate(sizes.values())]
    return {
        name: min(num_ranks - 1, start * num_ranks // total)
        for start, names in zip(before, parts.values(), strict=False)
        for name in names
    }


def _merge(folder: Path) -> None:
    """Merge the parts that the processes wrote into one policy."""
    parts = sorted(folder.glob("part-*"))
    files = [file for part in parts for file in sorted(part.glob("*.safetensors"))]
    weights = dict[str, str]()
    num_bytes = 0
    for number, file in enumerate(files, start=1):
        name = WEIGHTS if len(files) == 1 else f"model-{number:05d}-of-{len(files):05d}.safetensors"
        with safe_open(file, framework="pt") as stored:
            weights |= dict.fromkeys(stored.keys(), name)
        num_bytes += file.stat().st_size
        os.rename(file, folder / name)
    for file in parts[0].glob("*.json"):
        if file.name != INDEX:
            os.rename(file, folder / file.name)
    if len(files) > 1:
        index = {"metadata": {"total_size": num_bytes}, "weight_map": dict(sorted(weights.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    for part in parts:
        shutil.rmtree(part)


def finish(folder: Path, policy: Path, dtype: str) -> None:
    """Undo Trainer's change to a policy: special tokens that it aligned in the configs."""
    for file in {f for pattern in KEPT_FILES for f in policy.glob(pattern) if f.is_file()}:
        shutil.copyfile(file, folder / file.name)
    config = json.loads((policy / "config.json").read_text())
    config.pop("torch_dtype", None)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2) + "\n")
