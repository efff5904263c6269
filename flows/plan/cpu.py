"""What a profile needs on CPUs: memory, and core-hours.

The rates lie between those measured for two models, SmolLM2-135M and a Qwen2.5 model of 0.5 billion
parameters, in float32 on AMD cores without matrix instructions. The two differ by a factor of up to
two, so hours are no more accurate than that. On such cores, bfloat16 is several times slower than
float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.plan.plan import longest_row, updates_of
from flows.plan.seconds import answers_together
from flows.plan.shapes import Shape, shape_of
from flows.settings.profile import MethodSettings
from flows.settings.workload import PlannedConversations, PlannedUpdate, Workload
from tasks.models.engine import EngineConfig
from tasks.training.grpo import GRPOSettings

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
ENGINE_GB = 1.2  # code, buffers
WEIGHTS_TWICE = 1.7  # times the weights' bytes: they are read, then laid out for the CPU
TRAINER_GB = 1.2
PREFILL_GFLOPS = 100.0  # GFLOP/s of one core, as the next two
DECODE_GFLOPS = 60.0
TRAIN_GFLOPS = 50.0
ACTIVATIONS = 34  # bytes of a layer's activations per token and hidden unit, at 2 bytes per value


@dataclass(frozen=True)
class CPUPlan:
    """GB of memory by process, and CPU-hours of an iteration by kind.

    `hours` is None if the method has no workload. `context` is the maximum number of tokens of a
    conversation, `positions` the number of the model's positions (None if unknown), and
    `cache_tokens` the number of tokens that fit into an engine's cache.
    """

    memory_gb: dict[str, float]
    hours: dict[str, float] | None
    context: int
    positions: int | None
    cache_tokens: int

    @property
    def total_gb(self) -> float:
        """GB of memory if all processes are loaded at once."""
        return sum(self.memory_gb.values())


def plan_on_cpus(cfg: MethodSettings, workload: Workload | None) -> CPUPlan:
    """Compute the plan of a configuration whose engine is on CPUs.

    Without a `workload`, hours are unknown. Raises UnknownShape for a model whose sizes are not
    known on this machine.
    """
    shape = shape_of(cfg.engine.model)
    memory = {}
    for number in range(cfg.num_engines):
        memory[f"engine {number + 1}"] = _engine_gb(shape, cfg.engine)
    if cfg.judge_engine is not None:
        memory["judge_engine"] = _engine_gb(shape_of(cfg.judge_engine.model), cfg.judge_engine)
    base = shape_of(cfg.models.base)
    for name, settings in updates_of(cfg).items():
        memory[name] = cfg.trainer_processes * _trainer_gb(cfg, name, settings)
    hours = None
    if workload is not None:
        hours = {"generate": 0.0, "train": 0.0}
        for step in workload.steps:
            asked = sum(_generated_s(each, workload, base) for each in step.conversations)
            hours["generate"] += step.times * asked / 3600
            if step.update is not None:
                hours["train"] += step.times * _trained_s(step.update, workload, base) / 3600
    per_token = shape.cache_bytes // 2 * BYTES[cfg.engine.dtype]
    return CPUPlan(
        memory_gb=memory,
        hours=hours,
        context=cfg.engine.max_model_len,
        positions=shape.positions,
        cache_tokens=cfg.engine.kv_cache_bytes // per_token,
    )


def _engine_gb(shape: Shape, engine: EngineConfig) -> float:
    weights = shape.params * BYTES[engine.dtype]
    return ENGINE_GB + 1e-9 * (WEIGHTS_TWICE * weights + engine.kv_cache_bytes)


def _trainer_gb(cfg: MethodSettings, name: str, settings: GRPOSettings) -> float:
    """GB of a trainer process: weights, the optimizer's moments and gradients of the trained
    parameters, and the activations of a micro-batch."""
    shape = shape_of(cfg.trained_model(name))
    each = BYTES[settings.dtype]
    trained = shape.params
    if settings.lora is not None:
        trained = shape.adapter_params(settings.lora.rank, settings.lora.targets)
    tokens = longest_row(cfg, name, settings) * settings.micro_batch_size
    layers = shape.layers
    if settings.gradient_checkpointing:
        layers = 1
    activations = ACTIVATIONS / 2 * each * shape.hidden * tokens * layers
    return TRAINER_GB + 1e-9 * (each * shape.params + 12 * trained + activations)


def _generated_s(conversations: PlannedConversations, workload: Workload, shape: Shape) -> float:
    """CPU-seconds to sample a stage's conversations; a group's shared prompt is read once."""
    lengths = workload.lengths[conversations.role.name]
    read = conversations.prompts * lengths.prompt * (1 - lengths.cached)
    read += conversations.number * (lengths.turns - 1) * lengths.added
    sampled = conversations.number * lengths.turns * lengths.sampled
    # the head is computed only for a prompt's last token
    body = shape.active_params - shape.table_params
    flops_read = read * 2 * body
    flops_sampled = sampled * 2 * shape.active_params
    return 1e-9 * (flops_read / PREFILL_GFLOPS + flops_sampled / DECODE_GFLOPS)


def _trained_s(update: PlannedUpdate, workload: Workload, shape: Shape) -> float:
    """CPU-seconds of an update's passes: forward, backward, and recomputation."""
    settings = update.settings
    passes = 6
    if settings.lora is not None:
        passes = 4  # no gradients for the base's weights
    if settings.gradient_checkpointing:
        passes += 2
    tokens = 0.0
    for trained in update.conversations:
        lengths = workload.lengths[trained.role.name]
        together = answers_together(settings, lengths, workload.group(trained.role.name))
        rows = trained.number * lengths.datums / together
        tokens += rows * (lengths.datum_tokens + (together - 1) * (lengths.whole - lengths.prompt))
    return 1e-9 * tokens * passes * shape.active_params / TRAIN_GFLOPS
