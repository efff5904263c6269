"""The peak memory of an update on each GPU, by kind, computed without loading anything.

Persistent state is counted; the rest models what the libraries do: FSDP2 gathers one layer while it
computes with another, TRL's head keeps a float32 gradient of its weights, and a checkpointed layer
is recomputed. The bytes per token that a layer's backward pass keeps were fitted to runs of these
libraries on tensors without data (`tests/support/fake_update.py`), which a test repeats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from flows.plan.hardware import GIB, GPU, OVERHEADS
from flows.plan.shapes import Shape
from tasks.training.grpo import GRPOSettings

TILE = 4096, 32768  # tokens and vocabulary entries per tile of TRL's head, whose logits are float32
# bytes per pair of a row's tokens: masks of layers with a sliding window
WINDOW_MASKS = {"olmo3": 3}
# bytes per token and unit of width: of the MLP, of the hidden state, and (below) of queries and
# keys together
BACKWARD = {"full": (12.0, 18.2), "lora": (14.17, 28.4)}
ATTENTION = {
    "full": {"qwen3": 10.0, "qwen3_moe": 10.0, "olmo3": 15.1},  # with norms of queries and keys
    "lora": {"qwen3": 9.2, "qwen3_moe": 10.0, "olmo3": 8.8},
}
PLAIN_ATTENTION = {"full": 4.0, "lora": 5.0}
# answers per shared prompt: each has a copy of the prompt's keys and values in the current layer
ANSWERS = 8
LORA_MIXTURE = 1.09  # factor for an adapter in a mixture of experts
# bytes per token, per used expert and unit of width: its copy of the hidden state, and its MLP
ROUTED = 8.2


@dataclass(frozen=True)
class UpdateMemory:
    """GiB on each GPU: by phase, and by kind in the largest phase.

    `needed` includes memory outside tensors.
    """

    phases: dict[str, float]
    kinds: dict[str, float]
    needed: float
    tokens: int  # of the longest row

    @property
    def tensors(self) -> float:
        """GiB of tensors on each GPU in the largest phase."""
        return sum(self.kinds.values())

    def fits(self, gpu: GPU) -> bool:
        """Whether a card of this kind has enough memory."""
        return self.needed <= gpu.memory_gib


def update_memory(shape: Shape, settings: GRPOSettings, *, ranks: int, tokens: int) -> UpdateMemory:
    """The memory of an update for its longest row, of `tokens`, on each of `ranks` GPUs.

    It applies from the second micro-batch on. Several GPUs shard full weights, but each has a copy
    of an adapter's base.

    Raises ValueError for an adapter on every linear module of a mixture of experts.
    """
    kept = _persistent(shape, settings, ranks)
    phases = _phases(shape, settings, ranks, tokens)
    transient = max(phases.values(), key=lambda kinds: sum(kinds.values()))
    kinds = {
        kind: size / GIB for kind, size in Counter({**kept, **transient}).most_common() if size
    }
    beside = OVERHEADS.context + OVERHEADS.asleep
    if ranks > 1:
        beside += OVERHEADS.nccl
    needed = sum(kinds.values()) * (1 + OVERHEADS.fragmentation) + beside
    by_phase = {
        phase: (sum(kept.values()) + sum(extra.values())) / GIB for phase, extra in phases.items()
    }
    return UpdateMemory(phases=by_phase, kinds=kinds, needed=needed, tokens=tokens)


def reference_bytes(settings: GRPOSettings) -> int:
    """Bytes per parameter of the KL reference, which is in bfloat16 on the host; 0 without one."""
    if settings.beta:
        return 2
    return 0


def trained_params(shape: Shape, settings: GRPOSettings) -> int:
    """The number of parameters that an update changes. Raises ValueError for an adapter on every
    expert."""
    if settings.lora is None:
        return shape.params
    if shape.experts > 1 and settings.lora.targets == "all-linear":
        raise ValueError(
            'lora.targets "all-linear" of a mixture of experts would put an adapter on every'
            ' expert: name them, for instance ["q_proj", "k_proj", "v_proj", "o_proj"]'
        )
    return shape.adapter_params(settings.lora.rank, settings.lora.targets)


def _persistent(shape: Shape, settings: GRPOSettings, ranks: int) -> dict[str, float]:
    """Bytes that stay allocated throughout the update, by kind.

    Trained parameters are in float32, frozen ones in the settings' dtype.
    """
    frozen = 4
    if settings.dtype == "bfloat16":
        frozen = 2
    trained = trained_params(shape, settings)
    if settings.lora is not None:
        return {
            "weights": frozen * shape.params + 4 * trained,
            "optimizer": 8 * trained,
            "gradients": 4 * trained,
        }
    share = shape.params / ranks
    reference = 0.0
    if settings.beta:
        reference = frozen * share
    return {
        "weights": 4 * share,
        "optimizer": 8 * share,
        "gradients": 4 * share,
        "reference": reference,
    }


def _phases(
    shape: Shape, settings: GRPOSettings, ranks: int, tokens: int
) -> dict[str, dict[str, float]]:
    """Bytes in addition to the persistent ones, by phase and kind.

    The phases are the forward pass of the reference, the backward pass of the head, and that of a
    layer.
    """
    total = tokens * settings.micro_batch_size
    state = 2 * total * shape.hidden
    layer = total * _backward_bytes(shape, settings)
    if settings.shared_prompt_tokens:
        layer += 2 * 2 * shape.keys * ANSWERS * total
    # with checkpointing, every layer keeps its input, and one layer at a time is recomputed
    if settings.gradient_checkpointing:
        checkpoints = shape.layers * state
        computed = layer
    else:
        checkpoints = 0
        computed = shape.layers * layer
    masks = WINDOW_MASKS.get(shape.family, 0) * settings.micro_batch_size * tokens**2
    head = 2 * shape.table_params
    one = 2 * shape.layer_params
    tile = 4 * min(total, TILE[0]) * TILE[1]
    in_head = 3 * state + tile + 4 * shape.hidden * (shape.vocab % TILE[1] or TILE[1])
    if settings.lora is not None:
        return {
            "head, backward": {"activations": checkpoints + 4 * state + masks, "head": in_head},
            "layer, backward": {"activations": checkpoints + computed + masks},
        }
    own_gradient = 2 * shape.hidden * shape.intermediate * shape.experts
    if ranks == 1:  # autocast caches the weights that it has cast
        cast = 2 * (shape.params - shape.table_params)
        return {
            "head, backward": {
                "activations": checkpoints + 4 * state + masks,
                "head": in_head + 3 * head,
                "cast": cast,
            },
            "layer, backward": {
                "activations": checkpoints + computed + masks + own_gradient,
                "cast": cast,
            },
        }
    if shape.tied:
        # the embedding is also the head, so it stays gathered while layers compute
        outer = head
        head_in_layers = head
        reduced = 2 * one
    else:
        outer = 2 * head
        head_in_layers = 0
        reduced = max(2 * head, 2 * one)
    phases = {
        "head, backward": {
            "activations": checkpoints + 4 * state + masks,
            "head": in_head + 3 * head,
            "gathered": head + one,
        },
        "layer, backward": {
            "activations": checkpoints + computed + masks + own_gradient,
            "gathered": 2 * one + head_in_layers,
            "head": head_in_layers,
            "reduced": reduced,
        },
    }
    if settings.beta:
        phases["reference, forward"] = {
            "gathered": 2 * (outer + one),
            "activations": 2 * state + masks,
        }
    return phases


def _backward_bytes(shape: Shape, settings: GRPOSettings) -> float:
    """Peak bytes per token in a layer's recomputation and backward pass, without its checkpoint."""
    kind = "lora" if settings.lora else "full"
    by_mlp, by_hidden = BACKWARD[kind]
    attention = ATTENTION[kind].get(shape.family, PLAIN_ATTENTION[kind]) * (
        shape.queries + shape.keys
    )
    if shape.experts == 1:
        return by_mlp * shape.intermediate + by_hidden * shape.hidden + attention
    routed = ROUTED * shape.experts_used * (shape.hidden + shape.intermediate)
    mixture = routed + BACKWARD["full"][1] * shape.hidden + attention
    if kind == "lora":
        return mixture * LORA_MIXTURE
    return mixture
