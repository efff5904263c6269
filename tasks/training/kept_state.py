# TRL imports it from elsewhere; transformers types its models loosely.
# pyright: reportPrivateImportUsage=false
"""State kept in process memory from one update to the next.

A process keeps trained weights, optimizer states and the KL reference. The key of a state is the
identity of the files that hold the same values on disk. A process reads what it did not keep from
disk, with the same values.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object, wait_for_everyone
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights
from trl.trainer import grpo_trainer

from tasks.engines.child import OUT_OF_MEMORY
from tasks.processes.host_memory import host_memory
from tasks.training.pinned import bytes_to_allocate, on_host
from tasks.training.sharding import EMPTY
from tasks.training.state import Share, part, parts, put

log = logging.getLogger("selfplay")
GOES_ON = "going on from what an update before this one left in memory"
POSITIONS = ("max_position_embeddings", "rope_parameters")  # the keys of `Yarn.settings`
SPARE = 0.2  # share of the host's memory that is left to other processes
# (file name, inode, bytes, time of last change in nanoseconds) of every file
Identity = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class UnwrittenState:
    """A state that an update left in memory for `write`.

    `policy` is the identity of its policy's files; `writes` and `weights` are for `Share.save`.
    """

    policy: Identity
    share: Share
    writes: bool
    weights: bool


_shares: dict[Identity, Share] = {}
_unwritten: list[UnwrittenState] = []
_references: dict[tuple[Identity, str], list[torch.Tensor]] = {}
_load_model = grpo_trainer.create_model_from_path


def keep(optimizer: Any, *folders: Path) -> None:
    """Keep what was just written to `folders`, in all processes.

    If memory is short, the states kept longest are dropped.
    """
    share = _copy(optimizer)
    if share:
        _shares[identity(*folders)] = share


def keep_unwritten(optimizer: Any, policy: Path, *, writes: bool, weights: bool) -> bool:
    """Keep a state for `write`, and free the GPU.

    Returns False if memory is short: then nothing is kept.
    """
    _unwritten.clear()
    share = _copy(optimizer)
    if not share:
        return False
    _unwritten.append(UnwrittenState(identity(policy), share, writes, weights))
    return True


def write(folder: Path) -> None:
    """Write the state that the last update left, and keep it as `keep` does.

    All processes call it.
    """
    unwritten = _unwritten.pop()
    unwritten.share.save(folder, writes=unwritten.writes, weights=unwritten.weights)
    wait_for_everyone()
    _shares[unwritten.policy + identity(folder)] = unwritten.share


def _make_room(tensors: list[torch.Tensor]) -> bool:
    while _shares and not _everyone(_has_room(tensors)):
        _shares.pop(next(iter(_shares)))
        if torch.cuda.is_initialized():
            torch.accelerator.empty_host_cache()  # PyTorch keeps freed pinned memory for itself
    return _everyone(_has_room(tensors))


def _copy(optimizer: Any) -> Share | None:
    """The optimizer state, copied to the host.

    None in all processes if one of them did not get the memory.
    """
    if not _make_room(parts(optimizer)):
        return None
    share = None
    try:
        share = Share.of(optimizer)
    except RuntimeError as problem:
        if not OUT_OF_MEMORY.search(str(problem)):
            raise
        log.warning("no room in the host's memory for the state of an update: %s", problem)
    if not _everyone(share is not None):
        return None
    return share


def take(*folders: Path | None) -> Share | None:
    """The state of `folders`, if every process has it in memory.

    The caller owns it from then on. A folder that is None has no state, so nothing is kept for it.
    """
    key: Identity = ()
    if None not in folders:
        key = identity(*filter(None, folders))
    if not _everyone(key in _shares):
        return None
    log.info(GOES_ON)
    return _shares.pop(key)


def identity(*folders: Path) -> Identity:
    """The identity of all files in `folders`.

    Publishing does not change it, because that only renames a folder above them.
    """
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    return tuple(_file_identity(file) for file in files)


def _file_identity(file: Path) -> tuple[str, int, int, int]:
    stat = file.stat()
    return file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns


def empty_model(
    folder: Path | str, dtype: str | torch.dtype, attention: str, positions: dict[str, Any]
) -> Any:
    """The model of a folder without its weights, for the caller to fill.

    `positions` replace values of its config.
    """
    config = AutoConfig.from_pretrained(folder, **positions)
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    model.tie_weights()
    for parameter in model.parameters():
        setattr(parameter, EMPTY, True)
    return model


def keep_references() -> None:
    """Make TRL skip reading the KL reference's weights if `fill_reference` has them in memory."""
    grpo_trainer.create_model_from_path = _reference


def _reference(model_id: str, **settings: Any) -> Any:
    if _everyone(_name(model_id, settings["dtype"]) in _references):
        positions = {name: settings[name] for name in POSITIONS if name in settings}
        return empty_model(model_id, settings["dtype"], settings["attn_implementation"], positions)
    return _load_model(model_id, **settings)


def fill_reference(reference: torch.nn.Module, model_id: str, dtype: str | torch.dtype) -> None:
    """Fill the reference with the weights in memory; if there are none, keep its own for later."""
    name = _name(model_id, dtype)
    weights = list(reference.parameters())
    if _everyone(name in _references):
        for parameter, values in zip(weights, _references[name], strict=True):
            put(parameter, values)
        return
    own_parts = [part(parameter) for parameter in weights]
    if _everyone(_has_room(own_parts)):
        _references.clear()
        _references[name] = on_host(own_parts)


def _name(model_id: str, dtype: str | torch.dtype) -> tuple[Identity, str]:
    return identity(Path(model_id)), str(dtype).removeprefix("torch.")


def _has_room(tensors: list[torch.Tensor]) -> bool:
    """Whether enough memory stays free after all processes have copied theirs."""
    memory = host_memory()
    needed = sum(gather_object([bytes_to_allocate(tensors)]))
    return memory.available - needed > SPARE * memory.total


def _everyone(condition: bool) -> bool:
    """Whether `condition` is true in all processes: they must take the same branch."""
    return all(gather_object([condition]))
