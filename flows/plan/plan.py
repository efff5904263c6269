"""A profile's plan: memory, disk and hours, and what to change if it does not fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from flows.plan.engine import EngineMemory, asleep_bytes, engine_memory
from flows.plan.hardware import DEFAULT_NODES, GPU, GPUS, Nodes
from flows.plan.seconds import Clock, Duration
from flows.plan.shapes import Shape, shape_of
from flows.plan.trainer import UpdateMemory, reference_bytes, trained_params, update_memory
from flows.settings.profile import MethodSettings
from flows.settings.workload import Workload
from tasks.models.yarn import Yarn
from tasks.training.grpo import GRPOSettings, LoRASettings

# share of a card: published peaks of reserved memory were up to 18 % above the simulated tensors
SPARE = 0.1


# In a row of rollouts, Python holds each token's id as an integer in a list, and, if the token was
# sampled, its log-probability.
TOKEN_BYTES = 36
SAMPLED_TOKEN_BYTES = TOKEN_BYTES + 32


@dataclass(frozen=True)
class Plan:
    """What a configuration needs; sizes are in GiB or GB, as named.

    `spent` is the time of one iteration by kind; None if the method has no workload.
    """

    gpu: GPU
    num_gpus: int
    engine: EngineMemory
    judge: EngineMemory | None
    updates: dict[str, UpdateMemory]  # by the name of the update's settings
    host_gb: float
    rollouts_gb: float  # host memory of the largest table of rollouts while it is sampled
    disk_gb: float  # over the whole run
    disk_once_gb: float  # while an update is written
    spent: dict[str, Duration] | None

    @property
    def problems(self) -> list[str]:
        """Everything that does not fit, with the numbers."""
        problems = []
        for name, engine in (("engine", self.engine), ("judge_engine", self.judge)):
            if engine is None:
                continue
            if engine.needed > self.gpu.memory_gib:
                problems.append(
                    f"{name}: {engine.needed:.1f} GiB of {self.gpu.memory_gib} with its fixed"
                    f" cache: lower {name}.kv_cache_bytes"
                )
            if not engine.has_positions:
                problems.append(
                    f"{name}: max_model_len is {engine.context:,}, the model has"
                    f" {engine.positions:,} positions"
                )
            if not engine.has_room:
                problems.append(
                    f"{name}: the cache has room for {engine.cache_tokens:,} tokens, one"
                    f" conversation takes {engine.context:,}"
                )
        for name, update in self.updates.items():
            if not update.fits(self.gpu):
                problems.append(
                    f"{name}: {update.needed:.1f} GiB of {self.gpu.memory_gib} in rows of"
                    f" {update.tokens:,} tokens"
                )
        return problems

    @property
    def verdict(self) -> str:
        """Whether it fits: "yes", "no", or "tight" if less than `SPARE` of a card is left, which
        fragmentation may use up."""
        if self.problems:
            return "no"
        most = (1 - SPARE) * self.gpu.memory_gib
        if any(update.needed > most for update in self.updates.values()):
            return "tight"
        return "yes"

    @property
    def hours(self) -> float | None:
        """Hours of an iteration; None without a workload."""
        if self.spent is None:
            return None
        return sum(spent.seconds for spent in self.spent.values()) / 3600

    @property
    def busy(self) -> float:
        """The share of an iteration in which all GPUs are busy."""
        spent = (self.spent or {}).values()
        return sum(s.busy for s in spent) / max(sum(s.seconds for s in spent), 1e-9)


def make_plan(
    cfg: MethodSettings,
    gpu: GPU,
    workload: Workload | None = None,
    nodes: Nodes = DEFAULT_NODES,
) -> Plan:
    """Compute the plan of a configuration on cards of one kind, spread over `nodes` if need be.

    Without a `workload`, hours are unknown. Raises UnknownShape for a model whose sizes are not
    known on this machine, and ValueError for an adapter on every expert.
    """
    shape = shape_of(cfg.models.base)
    judge_shape = None
    judge_memory = None
    if cfg.judge_engine:
        judge_shape = shape_of(cfg.judge_engine.model)
        judge_memory = engine_memory(judge_shape, cfg.judge_engine, gpu)
    spent = None
    if workload:
        spent = Clock(cfg, shape, gpu, nodes).iteration(workload)
    disk = disk_need(cfg, workload)
    return Plan(
        gpu=gpu,
        num_gpus=num_gpus(cfg),
        engine=engine_memory(shape_of(cfg.engine.model), cfg.engine, gpu),
        judge=judge_memory,
        updates={
            name: update_memory(
                shape_of(cfg.trained_model(name)),
                _trained_with(cfg, settings),
                ranks=cfg.trainer_processes,
                tokens=longest_row(cfg, name, settings),
            )
            for name, settings in updates_of(cfg).items()
        },
        host_gb=host_gb(cfg, judge_shape, workload),
        rollouts_gb=rollouts_gb(workload),
        disk_gb=disk.kept_gb,
        disk_once_gb=disk.once_gb,
        spent=spent,
    )


def _trained_with(cfg: MethodSettings, settings: GRPOSettings) -> GRPOSettings:
    """The settings as the trainer sees them: without the KL reference if engines score it."""
    if cfg.reference_by == "engine":
        return settings.model_copy(update={"beta": 0.0})
    return settings


def longest_row(cfg: MethodSettings, name: str, settings: GRPOSettings) -> int:
    """The maximum tokens of a row of an update: a whole context, or a shared prompt with its
    answers."""
    dialogues = getattr(cfg, "dialogues", None)
    room = cfg.engine.max_model_len
    limit = cfg.row_tokens(name)
    if limit is not None:
        return min(limit, room)
    return max(
        min(getattr(dialogues, "context_tokens", None) or room, room),
        settings.shared_prompt_tokens or 0,
    )


def num_gpus(cfg: MethodSettings) -> int:
    """The number of GPUs that the run needs: engines and trainer take turns on them."""
    engines = cfg.num_engines * cfg.engine.tensor_parallel
    if cfg.judge_engine:
        engines = _with_judge(engines, cfg.judge_engine.tensor_parallel)
    return max(engines, cfg.trainer_processes)


def _with_judge(engines: int, judge: int) -> int:
    """The number of GPUs for the players' engines and the judge.

    The first GPU of the judge is at a multiple of the number of its GPUs.

    >>> _with_judge(5, 2)
    8
    """
    return math.ceil(engines / judge) * judge + judge


def gpus_here(cfg: MethodSettings) -> int:
    """The number of GPUs that the run needs on its flow's machine, for engines and a trainer that
    are not placed on nodes."""
    return max(_gpus_of_engines(cfg, "local"), trainers_here(cfg))


def trainers_here(cfg: MethodSettings) -> int:
    """The number of the trainer's processes on the flow's machine."""
    if cfg.trainer_place == "ray":
        return 0
    return cfg.trainer_processes


def _gpus_of_engines(cfg: MethodSettings, place: str) -> int:
    engines = 0
    if cfg.engine.place == place:
        engines = cfg.num_engines * cfg.engine.tensor_parallel
    judge = cfg.judge_engine
    if judge and judge.place == place:
        engines = _with_judge(engines, judge.tensor_parallel)
    return engines


def updates_of(settings: BaseModel, where: str = "") -> dict[str, GRPOSettings]:
    """The settings of every update in a configuration, at any depth, by dotted names that begin
    with `where`."""
    updates: dict[str, GRPOSettings] = {}
    for name in type(settings).model_fields:
        value: Any = getattr(settings, name)
        if isinstance(value, GRPOSettings):
            updates[f"{where}{name}"] = value
        elif isinstance(value, BaseModel):
            updates |= updates_of(value, f"{where}{name}.")
    return updates


def host_gb(cfg: MethodSettings, judge_shape: Shape | None, workload: Workload | None) -> float:
    """Host memory (GB) at the start of an update: what trainer processes read or keep, and engines.

    Engines are asleep then, with their weights in host memory.
    """
    updates = [
        (shape_of(cfg.trained_model(name)), _trained_with(cfg, settings))
        for name, settings in updates_of(cfg).items()
    ]
    engine_shape = shape_of(cfg.engine.model)
    if not updates:  # engines never sleep, but they read their weights
        params = cfg.num_engines * engine_shape.params
        if judge_shape:
            params += judge_shape.params
        return 2e-9 * params
    asleep = cfg.num_engines * asleep_bytes(engine_shape, cfg.engine)
    if cfg.judge_engine and judge_shape:
        asleep += asleep_bytes(judge_shape, cfg.judge_engine)
    read = cfg.trainer_processes * max(_read_bytes(*update) for update in updates)
    if cfg.resident_trainer:
        kept = max(_kept_bytes(cfg, *update) for update in updates)
        # one player's first update reads; the others' state is kept
        read = max(read, kept) + (num_players(workload, len(updates)) - 1) * kept
    return 1e-9 * (read + asleep)


def rollouts_gb(workload: Workload | None) -> float:
    """Host memory (GB) of the largest table of rollouts, held until all of them are sampled.

    R-Zero's pool, for example, has ten answers to each of 8,000 questions.
    """
    if workload is None:
        return 0.0
    sizes = [0.0]
    for step in workload.steps:
        for asked in step.conversations:
            lengths = workload.lengths[asked.role.name]
            sampled = lengths.turns * lengths.sampled
            tokens = lengths.prompt + (lengths.turns - 1) * lengths.added
            each = sampled * SAMPLED_TOKEN_BYTES + tokens * TOKEN_BYTES
            sizes.append(asked.number * each)
    return 1e-9 * max(sizes)


def num_players(workload: Workload | None, num_updates: int) -> int:
    """The number of trained players; without a workload, one per update in the settings."""
    if workload is None:
        return num_updates
    return workload.players


def _read_bytes(shape: Shape, settings: GRPOSettings) -> float:
    """Bytes of host memory of a process that reads weights: float32 weights if it trains them, or
    the bfloat16 base of an adapter.

    With a KL term, a bfloat16 reference is added to trained weights.
    """
    if settings.lora:
        return 2 * shape.params
    return (4 + reference_bytes(settings)) * shape.params


def _kept_bytes(cfg: MethodSettings, shape: Shape, settings: GRPOSettings) -> float:
    """Bytes of host memory that keep one player: weights, moments and reference, sharded over
    processes.

    If it is an adapter, every process keeps a whole copy.
    """
    if settings.lora:
        return cfg.trainer_processes * 12 * trained_params(shape, settings)
    return (12 + reference_bytes(settings)) * shape.params


@dataclass(frozen=True)
class DiskNeed:
    """GB on disk of weights and optimizer states."""

    kept_gb: float  # over the whole run
    once_gb: float  # while an update is written


@dataclass(frozen=True)
class UpdateFiles:
    """GB that an update writes."""

    weights: float  # for engines
    state: float  # of the optimizer

    @property
    def total(self) -> float:
        return self.weights + self.state


def disk_need(cfg: MethodSettings, workload: Workload | None) -> DiskNeed:
    """GB on disk for what the run keeps, and for what exists while an update is written.

    Without a `workload`, assumes one update per iteration.
    """
    sizes = [
        _written_files(shape_of(cfg.trained_model(name)), settings)
        for name, settings in updates_of(cfg).items()
    ]
    if not sizes:
        return DiskNeed(kept_gb=0.0, once_gb=0.0)
    largest = max(sizes, key=lambda files: files.total)
    players = num_players(workload, len(sizes))
    if cfg.keep_checkpoints == "all":
        num_updates = 1.0
        if workload:
            num_updates = workload.num_updates
        kept = largest.total * cfg.iterations * num_updates
    else:
        kept = largest.total * players + largest.weights * players * (cfg.iterations - 1)
    return DiskNeed(kept_gb=kept, once_gb=largest.total * (players + 1))


def _written_files(shape: Shape, settings: GRPOSettings) -> UpdateFiles:
    """The sizes of what an update writes. If exported weights are rounded to bfloat16, the
    optimizer's state includes them in float32."""
    trained = 1e-9 * trained_params(shape, settings)
    if settings.export_dtype == "bfloat16" and settings.lora is None:
        return UpdateFiles(weights=2 * trained, state=12 * trained)
    return UpdateFiles(weights=4 * trained, state=8 * trained)


def network_gb(cfg: MethodSettings, num_nodes: int) -> float | None:
    """GB of weights that engines on other nodes read per iteration; None without a workload.

    Prompts and rollouts, which are token ids, take only megabytes.
    """
    workload = cfg.workload()
    if workload is None:
        return None
    shape = shape_of(cfg.models.base)
    sizes = [_written_files(shape, settings).weights for settings in updates_of(cfg).values()]
    elsewhere = cfg.num_engines * (num_nodes - 1) / num_nodes
    return max(sizes, default=0.0) * workload.num_updates * elsewhere


def ways_out(cfg: MethodSettings, gpu: GPU) -> Iterator[str]:
    """Yield single changes to a configuration that make its plan fit, as command-line options or in
    words: first larger cards, then settings."""
    for name, other in GPUS.items():
        if other.memory_gib > gpu.memory_gib and not make_plan(cfg, other).problems:
            yield f"--gpu {name}"
    for change, changed in _changes(cfg):
        try:
            if not make_plan(changed, gpu).problems:
                yield change
        except ValueError:
            continue


def _changes(cfg: MethodSettings) -> Iterator[tuple[str, MethodSettings]]:
    """Yield single changes that reduce memory, each with its text for the user."""
    yield from _changed_updates(cfg)
    yield from _changed_machines(cfg)
    yield from _changed_contexts(cfg)


def _changed_updates(cfg: MethodSettings) -> Iterator[tuple[str, MethodSettings]]:
    """Smaller updates: recomputed activations, single rows, adapters."""
    for name, settings in updates_of(cfg).items():
        if not settings.gradient_checkpointing:
            yield (
                f"--set {name}.gradient_checkpointing=true",
                _changed(cfg, name, {"gradient_checkpointing": True}),
            )
        if settings.micro_batch_size > 1:
            yield f"--set {name}.micro_batch_size=1", _changed(cfg, name, {"micro_batch_size": 1})
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    adapters = cfg.model_copy(
        update={"engine": cfg.engine.model_copy(update={"max_lora_rank": 64})}
    )
    lora = LoRASettings(rank=64, alpha=128, targets=targets)
    for name in updates_of(cfg):
        adapters = _changed(adapters, name, {"lora": lora})
    if any(settings.lora is None for settings in updates_of(cfg).values()):
        yield "LoRA on attention (rank 64; engine.max_lora_rank=64)", adapters


def _changed_machines(cfg: MethodSettings) -> Iterator[tuple[str, MethodSettings]]:
    """More GPUs for the trainer or for an engine."""
    for more in (8, 16, 32):
        if more > cfg.trainer_processes:
            yield (
                f"trainer_processes={more}, on as many GPUs of one machine",
                cfg.model_copy(update={"trainer_processes": more}),
            )
    for more in (2, 4, 8):
        if more > cfg.engine.tensor_parallel:
            engine = cfg.engine.model_copy(update={"tensor_parallel": more})
            yield f"--set engine.tensor_parallel={more}", cfg.model_copy(update={"engine": engine})


def _changed_contexts(cfg: MethodSettings) -> Iterator[tuple[str, MethodSettings]]:
    """Stretched positions, or shorter contexts."""
    if (positions := shape_of(cfg.engine.model).positions) and cfg.engine.max_model_len > positions:
        factor = -(-cfg.engine.max_model_len // positions)
        engine = cfg.engine.model_copy(update={"yarn": Yarn(factor=factor)})
        yield f"--set engine.yarn.factor={factor}", cfg.model_copy(update={"engine": engine})
    for less in (24576, 16384, 12288, 8192):
        if less < cfg.engine.max_model_len:
            engine = cfg.engine.model_copy(update={"max_model_len": less})
            yield (
                f"--set engine.max_model_len={less} (with shorter prompts and replies)",
                cfg.model_copy(update={"engine": engine}),
            )


def _changed(settings: Any, where: str, values: dict[str, Any]) -> Any:
    """A copy of the settings in which the part with the dotted name `where` has new `values`."""
    first, _, rest = where.partition(".")
    if not rest:
        return settings.model_copy(
            update={first: getattr(settings, first).model_copy(update=values)}
        )
    inner = _changed(getattr(settings, first), rest, values)
    return settings.model_copy(update={first: inner})
