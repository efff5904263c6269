# TRL imports it from elsewhere.
# pyright: reportPrivateImportUsage=false
"""Full weights on several GPUs: what FSDP2 gathers at once, and in what precision."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_init
from trl.trainer import grpo_trainer

# Accelerate's own policy sums gradients in bfloat16 and rounds outputs to it. An `output_dtype` of
# float32 would apply to every layer and double what checkpointing keeps; log-probabilities are
# float32 even without it, because TRL's head makes them so.
SHARDED_BFLOAT16 = MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32)

_prepare_whole = grpo_trainer.prepare_fsdp
_move_states = _fsdp_init._move_states_to_device
EMPTY = "holds_nothing"  # attribute of a parameter that is filled once it is sharded


def shard_references_by_layer() -> None:
    """Make TRL shard a KL reference layer by layer.

    By default TRL makes it a single unit, which every forward pass gathers whole and briefly holds
    twice: 31 GiB for 8B parameters in bfloat16.
    """
    grpo_trainer.prepare_fsdp = _prepare_by_layer


def move_no_empty_weights() -> None:
    """Make FSDP2 allocate empty parameters on the GPU instead of copying them there.

    They are 33 GB for 8B parameters in float32.
    """
    _fsdp_init._move_states_to_device = _allocate_and_move


def _allocate_and_move(
    params: list[torch.nn.Parameter], buffers: list[torch.Tensor], device: torch.device
) -> None:
    for parameter in params:
        if getattr(parameter, EMPTY, False) and parameter.device != device:
            parameter.data = torch.empty_like(parameter, device=device)
    _move_states(params, buffers, device)


def _prepare_by_layer(model: Any, accelerator: Any) -> Any:
    policy = accelerator.state.fsdp_plugin.mixed_precision_policy or MixedPrecisionPolicy()
    layers = [
        module
        for module in model.modules()
        if type(module).__name__ in (model._no_split_modules or ())
    ]
    for layer in layers:
        fully_shard(layer, mp_policy=policy, reshard_after_forward=True)
    return _prepare_whole(model, accelerator)
