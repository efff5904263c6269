"""Peak memory of one GPU in an update, without a GPU: two micro-batches on tensors without data.

These parts are real: transformers' model, TRL's head, the preparation of the reference by TRL and
this project, the preparation of the policy by Accelerate, PEFT, and torch's FSDP2, over torch's
fake process group. Kernels that CUDA has and CPUs lack are replaced: attention, the grouped
products of a mixture of experts, the folding of logits. AdamW on CUDA works in place.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "ACCELERATE_USE_CPU": "true"}

import torch
import torch.distributed as dist
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from peft import LoraConfig, get_peft_model
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp._fully_shard import _fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, masking_utils
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
from trl.kernels import chunked_logprob
from trl.trainer import grpo_trainer
from trl.trainer import utils as trl_utils

from tasks.training.grpo import GRPOSettings
from tasks.training.sharding import SHARDED_BFLOAT16, shard_references_by_layer
from tasks.training.shared_prompts import PackedRow
from tests.support.memory_tracker import MemoryTracker, patched


def fake_update(
    config: dict[str, Any],
    settings: GRPOSettings,
    *,
    ranks: int,
    tokens: int,
    packed: PackedRow | None = None,
    cuda: bool = True,
) -> dict[str, dict[str, int]]:
    """Bytes by kind at the peak of each phase, on one of `ranks` GPUs, with one row of `tokens`, or
    a packed one.

    `config` holds the values of a config.json. Without `cuda`, the kernels are a CPU's.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    # a mesh reads its ranks, which fake tensors do not have
    mesh = init_device_mesh("cpu", (ranks,))
    shard_references_by_layer()
    try:
        with (
            patched(
                (_fully_shard, "_init_default_mesh", lambda *_, **__: mesh),
                *(CUDA if cuda else ()),
                *NO_PADDING,
            ),
            kernels(cuda),
            FakeTensorMode(allow_non_fake_inputs=True),
        ):
            return _work(config, settings, ranks, tokens, packed, cuda)
    finally:
        dist.destroy_process_group()


def _work(
    config: dict[str, Any],
    settings: GRPOSettings,
    ranks: int,
    tokens: int,
    packed: PackedRow | None,
    cuda: bool,
) -> dict[str, dict[str, int]]:
    tracker = MemoryTracker()
    sharded = ranks > 1 and settings.lora is None
    accelerator = _accelerator()
    policy = _policy(config, settings, cuda)
    reference = None
    if settings.beta and settings.lora is None:
        reference = _model(config, torch.bfloat16)
        trl_utils.add_fused_lm_head(reference, cast_lm_head_to_fp32=cuda)
        if sharded:
            grpo_trainer.prepare_fsdp(reference, accelerator)
        reference.eval()
    if sharded:
        policy = fsdp2_prepare_model(accelerator, policy)
    trained = [p for p in policy.parameters() if p.requires_grad]
    with tracker:
        for model, kind in ((policy, "weights"), (reference, "reference")):
            for p in model.parameters() if model is not None else ():
                tracker.see(p, kind)
        with tracker.labelled("optimizer"):
            moments = [torch.zeros_like(p) for p in trained for _ in range(2)]
        for number in (1, 2):
            _micro_batch(tracker, policy, reference, settings, number, _inputs(tokens, packed))
            for p in trained:
                tracker.see(p.grad, "gradients")
        del moments
    return tracker.peaks


def _micro_batch(
    tracker: MemoryTracker,
    policy: Any,
    reference: Any,
    settings: GRPOSettings,
    number: int,
    about: dict[str, Any],
) -> None:
    known = None
    with torch.autocast("cpu", torch.bfloat16):
        if settings.beta:
            tracker.phase = f"reference {number}"
            off = contextlib.nullcontext() if reference is not None else policy.disable_adapter()
            with torch.no_grad(), off:
                known = (reference if reference is not None else policy)(**about).log_probs
        tracker.phase = f"forward {number}"
        logps = policy(**about).log_probs
    ratio = torch.exp(logps - logps.detach())
    loss = -torch.min(ratio, torch.clamp(ratio, 0.8, 1.2))
    if known is not None:
        loss = loss + settings.beta * (torch.exp(known - logps) - (known - logps) - 1)
    tracker.phase = f"backward {number}"
    loss.sum().backward()


def _inputs(tokens: int, packed: PackedRow | None) -> dict[str, Any]:
    if packed is None:
        ids = torch.ones((1, tokens), dtype=torch.int64)
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "labels": ids.clone(),
            "fused_lm_head": True,
        }
    rows = torch.ones(
        (len(packed.answers), packed.prefix + 1 + max(packed.answers)), dtype=torch.int64
    )
    return {**packed.pack(rows, rows), "packed": packed, "fused_lm_head": True}


def _policy(config: dict[str, Any], settings: GRPOSettings, cuda: bool) -> Any:
    lora = settings.lora
    policy = _model(config, torch.float32 if lora is None else torch.bfloat16)
    if lora is not None:
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        adapter = LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM"
        )
        # fake tensors cannot be moved
        with patched((torch.nn.Module, "to", lambda self, *_, **__: self)):
            policy = get_peft_model(policy, adapter)
    if settings.gradient_checkpointing:
        policy.gradient_checkpointing_enable({"use_reentrant": False})
    policy.train()
    inner = policy if lora is None else policy.get_base_model()
    trl_utils.add_fused_lm_head(inner, cast_lm_head_to_fp32=cuda, outputs=("log_probs", "entropy"))
    return policy


def _model(values: dict[str, Any], dtype: torch.dtype) -> Any:
    config = CONFIG_MAPPING[values["model_type"]](
        **{k: v for k, v in values.items() if k != "model_type"}
    )
    config._attn_implementation = "sdpa"
    config.use_cache = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoModelForCausalLM.from_config(config, dtype=dtype)


def _accelerator() -> Any:
    """The parts of an Accelerator that the preparation of FSDP2 uses, with the plugin that
    Trainer makes."""
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="TRANSFORMER_BASED_WRAP",
        cpu_ram_efficient_loading=False,
        state_dict_type="FULL_STATE_DICT",
        reshard_after_forward=True,
        mixed_precision_policy=SHARDED_BFLOAT16,
    )
    return SimpleNamespace(
        state=SimpleNamespace(fsdp_plugin=plugin),
        mixed_precision="bf16",
        is_main_process=False,
        device=torch.device("cpu"),
        torch_device_mesh=None,
        parallelism_config=None,
    )


class FlashAttention(torch.autograd.Function):
    """What CUDA's kernel allocates: output and log-sum-exp; backward dq, dk, dv and a float32
    sum of dq."""

    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        sums = q.new_empty(q.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, sums, mask)
        return out

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        q, k, v, *_ = ctx.saved_tensors
        found = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        whole = [torch.empty_like(q) for _ in range(2)] if k.shape != q.shape else []
        del whole, _
        torch.empty_like(q, dtype=torch.float32)
        return *found, None


def attention(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    packed: PackedRow | None = None,
    **_: Any,
) -> Any:
    if packed is not None:
        (q, *qs), (k, *ks), (v, *vs) = (
            t.split((packed.prefix, *packed.answers), dim=2) for t in (query, key, value)
        )
        answers = [
            FlashAttention.apply(
                own, torch.cat([k, own_k], dim=2), torch.cat([v, own_v], dim=2), None
            )
            for own, own_k, own_v in zip(qs, ks, vs, strict=True)
        ]
        return (
            torch.cat([FlashAttention.apply(q, k, v, None), *answers], dim=2)
            .transpose(1, 2)
            .contiguous(),
            None,
        )
    if attention_mask is not None:  # the kernel that takes a mask needs as many keys as queries
        groups = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(groups, dim=1) if groups > 1 else t for t in (key, value))
        attention_mask = torch.empty(attention_mask.shape, dtype=query.dtype)
    out = FlashAttention.apply(query, key, value, attention_mask)
    return out.transpose(1, 2).contiguous(), None


class GroupedProduct(torch.autograd.Function):
    """Rows times the weights of their expert, (rows, out); gradients of the rows and of all
    experts' weights."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        return rows.new_empty(rows.shape[0], weight.shape[1])

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        rows, weight = ctx.saved_tensors
        return torch.empty_like(rows), torch.empty_like(weight) if ctx.needs_input_grad[1] else None


def experts(self: Any, hidden: Any, index: Any, weights: Any) -> Any:
    """What transformers' grouped products allocate; the number of rows does not depend on the
    routing."""
    tokens, used = index.shape
    rows = hidden.unsqueeze(1).expand(-1, used, -1).reshape(tokens * used, -1).clone()
    gate, value = GroupedProduct.apply(rows, self.gate_up_proj).chunk(2, dim=-1)
    out = GroupedProduct.apply(self.act_fn(gate) * value, self.down_proj)
    out = out * weights.reshape(-1, 1).to(out.dtype)
    return out.view(tokens, used, -1).sum(1)


CUDA = (
    (chunked_logprob, "_forward_tile", lambda *_, **__: None),
    (chunked_logprob, "_backward_tile", lambda *_, **__: None),
    (chunked_logprob, "_addmm_fp32", lambda *_: None),
    (Qwen3MoeExperts, "forward", experts),
)
# one row needs no mask; which of its tokens the head scores is data, so here it scores all
NO_PADDING = (
    (masking_utils, "fast_all", lambda mask: True),
    (masking_utils, "is_tracing", lambda *_: False),
    (trl_utils, "_use_triton", lambda device: False),
)


@contextlib.contextmanager
def kernels(cuda: bool) -> Iterator[None]:
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    if cuda:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = attention
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS["sdpa"] = sdpa
