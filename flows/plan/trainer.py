"""The peak memory of an update on each GPU, by kind, computed without loading anything.

Persistent state is counted; the rest follows the libraries: FSDP2 gathers a layer while it computes
with another, TRL's head keeps a float32 gradient of its weights, a checkpointed layer is
recomputed. The bytes that one layer's backward pass keeps for a token were fitted to runs of those
libraries on tensors without data (`tests/support/fake_update.py`), which a test repeats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from flows.plan.hardware import GIB, GPU, OVERHEADS
from flows.plan.shapes import Shape
from tasks.training.grpo import GRPOSettings

TILE = 4096, 32768  # tokens and words of which TRL's head computes logits at a time, in float32
# bytes for each pair of a row's tokens: masks of layers with a sliding window
WINDOW_MASKS = {"olmo3": 3}
# for each token: bytes by width of the MLP, of the hidden state, and of queries and keys together.
BACKWARD = {"full": (12.0, 18.2), "lora": (14.17, 28.4)}
ATTENTION = {
    "full": {"qwen3": 10.0, "qwen3_moe": 10.0, "olmo3": 15.1},  # norms of queries and keys
    "lora": {"qwen3": 9.2, "qwen3_moe": 10.0, "olmo3": 8.8},
}
PLAIN_ATTENTION = {"full": 4.0, "lora": 5.0}
# to a shared prompt: in the layer being computed, each has a copy of the prompt's keys and values
ANSWERS = 8
LORA_MIXTURE = 1.09  # what an adapter adds in a mixture of experts
ROUTED = 8.2  # by what a token's experts copy of the hidden state, and by their widths


@dataclass(frozen=True)
class UpdateMemory:
    """GiB of each GPU: by phase, and by kind in the largest phase.

    `needed` adds what is not in tensors.
    """

    phases: dict[str, float]
    kinds: dict[str, float]
    needed: float
    tokens: int  # of the longest row

    @property
    def tensors(self) -> float:
        """GiB of each GPU that tensors take in the largest phase."""
        return sum(self.kinds.values())

    def fits(self, gpu: GPU) -> bool:
        """Whether a card of this kind has the memory that is needed."""
        return self.needed <= gpu.memory_gib


def update_memory(shape: Shape, settings: GRPOSettings, *, ranks: int, tokens: int) -> UpdateMemory:
    """Memory of an update's longest row, of `tokens`, on each of `ranks` GPUs.

    It is that of the second micro-batch and later ones. Several GPUs shard full weights and copy an
    adapter's base.

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
    """Bytes of the KL reference for each parameter: it is in bfloat16 on the host; 0 without it."""
    if settings.beta:
        return 2
    return 0


def trained_params(shape: Shape, settings: GRPOSettings) -> int:
    """Parameters that an update changes. Raises ValueError for an adapter on every expert."""
    if settings.lora is None:
        return shape.params
    if shape.experts > 1 and settings.lora.targets == "all-linear":
        raise ValueError(
            'lora.targets "all-linear" of a mixture of experts would put an adapter on every'
            ' expert: name them, for instance ["q_proj", "k_proj", "v_proj", "o_proj"]'
        )
    return shape.adapter_params(settings.lora.rank, settings.lora.targets)


def _persistent(shape: Shape, settings: GRPOSettings, ranks: int) -> dict[str, float]:
    """Bytes that stay through the update, by kind.

    What is trained is in float32, what is not in the settings' dtype.
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
    """Bytes beside the persistent ones, by phase and kind.

    Phases are the reference's forward pass, the head's backward pass and a layer's.
    """
    total = tokens * settings.micro_batch_size
    state = 2 * total * shape.hidden
    layer = total * _backward_bytes(shape, settings)
    if settings.shared_prompt_tokens:
        layer += 2 * 2 * shape.keys * ANSWERS * total
    # with checkpoints every layer keeps its input, and one layer is recomputed at a time
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
    if ranks == 1:  # autocast keeps the weights that it has cast
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
        # the table is the head, too: it stays gathered while layers compute
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
    """Peak bytes per token of a layer's recomputation and backward pass, without its checkpoint."""
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
