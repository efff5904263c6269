"""The memory of an engine on each GPU: weights, adapters, working memory and KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from flows.plan.hardware import GIB, GPU, OVERHEADS
from flows.plan.shapes import Shape
from tasks.models.engine import MAX_LORAS, EngineConfig

SEGMENT = 2 << 20  # bytes


@dataclass(frozen=True)
class EngineMemory:
    """GiB on each GPU of an engine; `cache_tokens` counts the tokens in the whole engine's
    cache."""

    weights: float
    adapters: float
    working: float
    cache: float
    cache_tokens: int
    context: int  # tokens of the longest conversation
    positions: int | None  # the model's positions, after any stretching; None: unknown

    @property
    def needed(self) -> float:
        """GiB of all parts together."""
        return self.weights + self.adapters + self.working + self.cache

    def fits(self, gpu: GPU) -> bool:
        """Whether conversations of full length can be sampled on cards of this kind."""
        return self.needed <= gpu.memory_gib and self.has_room and self.has_positions

    @property
    def has_room(self) -> bool:
        """Whether the cache can hold a conversation of full length."""
        return self.cache_tokens >= self.context

    @property
    def has_positions(self) -> bool:
        """Whether the model has a position for each token of a conversation of full length; True if
        its number of positions is unknown."""
        return self.positions is None or self.positions >= self.context

    @property
    def conversations(self) -> float:
        """How many conversations of full length fit into the cache at once."""
        return self.cache_tokens / self.context


def engine_memory(shape: Shape, engine: EngineConfig, gpu: GPU) -> EngineMemory:
    """The memory of an engine with these settings on cards of this kind, in GiB per card, and the
    number of tokens that fit into its cache.

    The cache gets the rest of `gpu_memory_utilization`; if it is below 0, the other parts do not
    fit. A cache of fixed size is independent of that, and may not fit in addition to the other
    parts.
    """
    across = engine.tensor_parallel
    weights = 2 * shape.params / across / GIB
    adapters = 0.0
    if rank := engine.max_lora_rank:
        adapters = 2 * MAX_LORAS * shape.adapter_params(rank, "all-linear") / across / GIB
    batched = max(engine.max_batched_tokens, engine.max_num_seqs)
    # of one layer: the MLP's halves and their product, attention, residual
    activations = 2 * 14 * batched * shape.hidden / GIB
    logits = 3 * 4 * engine.max_num_seqs * shape.vocab / GIB
    working = activations + logits + OVERHEADS.graphs + OVERHEADS.context
    cache = engine.gpu_memory_utilization * gpu.memory_gib - weights - adapters - working
    if engine.fixed_kv_cache:
        cache = engine.kv_cache_bytes / GIB
    # with more GPUs than key heads, each head is replicated on several GPUs
    tokens = max(0, int(cache * GIB * min(across, shape.keys // shape.head) / shape.cache_bytes))
    positions = shape.positions
    if engine.yarn and positions:
        positions = engine.yarn.positions(positions)
    return EngineMemory(
        weights=weights,
        adapters=adapters,
        working=working,
        cache=cache,
        cache_tokens=tokens,
        context=engine.max_model_len,
        positions=positions,
    )


def asleep_bytes(shape: Shape, engine: EngineConfig) -> int:
    """Bytes of host memory of a sleeping engine, for all its GPUs.

    vLLM copies every segment of the weights (one matrix, rounded up to 2 MiB) to pinned memory, and
    PyTorch rounds that up to a power of two. 36 layers with a matrix of 4096 x 6144 in bfloat16 are
    36 segments of 48 MiB, which take 36 x 64 MiB.
    """
    matrices = [(size, shape.layers) for size in shape.engine_matrices]
    matrices.append((shape.table_params, shape.tables))
    segments = [
        (-(-2 * size // engine.tensor_parallel // SEGMENT) * SEGMENT, times)
        for size, times in matrices
    ]
    return engine.tensor_parallel * sum(
        times * (1 << (size - 1).bit_length()) for size, times in segments
    )
