"""A profile's plan: memory of each GPU, memory and disk of the host, hours; and what to change if it does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from flows.plan.engine import EngineMemory, asleep_bytes, engine_memory
from flows.plan.hardware import GPU, GPUS
from flows.plan.seconds import Clock, Spent
from flows.plan.shapes import Shape, shape_of
from flows.plan.trainer import UpdateMemory, trained_params, update_memory
from flows.plan.workload import Workload
from flows.profile import MethodSettings
from tasks.engines.yarn import Yarn
from tasks.training.grpo import GRPOSettings, LoRASettings

SPARE = 0.1  # of a card: published peaks of reserved memory were up to 18 % above the tensors of a simulation


@dataclass(frozen=True)
class Plan:
    """GiB and GB as named. `spent`: time of one iteration by kind; None if the method has no workload."""

    gpu: GPU
    num_gpus: int
    engine: EngineMemory
    judge: EngineMemory | None
    updates: dict[str, UpdateMemory]  # by the name of their settings
    host_gb: float
    disk_gb: float  # over the run
    disk_once_gb: float  # while an update writes
    spent: dict[str, Spent] | None

    @property
    def problems(self) -> list[str]:
        """What does not fit."""
        found = []
        for name, engine in (("engine", self.engine), ("judge_engine", self.judge)):
            if engine and not engine.has_positions:
                found.append(
                    f"{name}: max_model_len is {engine.context:,}, the model has {engine.positions:,} positions"
                )
            if engine and not engine.has_room:
                found.append(
                    f"{name}: the cache has room for {engine.cache_tokens:,} tokens, one conversation takes "
                    f"{engine.context:,}"
                )
        for name, update in self.updates.items():
            if not update.fits(self.gpu):
                found.append(
                    f"{name}: {update.needed:.1f} GiB of {self.gpu.memory_gib} in rows of {update.tokens:,} tokens"
                )
        return found

    @property
    def verdict(self) -> str:
        """yes, no, or tight: less than `SPARE` of a card is left, which fragmentation may take."""
        tight = any(update.needed > (1 - SPARE) * self.gpu.memory_gib for update in self.updates.values())
        return "no" if self.problems else "tight" if tight else "yes"

    @property
    def hours(self) -> float | None:
        return None if self.spent is None else sum(s.seconds for s in self.spent.values()) / 3600

    @property
    def busy(self) -> float:
        """Share of an iteration in which all GPUs work."""
        spent = (self.spent or {}).values()
        return sum(s.busy for s in spent) / max(sum(s.seconds for s in spent), 1e-9)


def make_plan(cfg: MethodSettings, gpu: GPU, workload: Workload | None = None) -> Plan:
    """Compute the plan of a configuration. Raises UnknownShape, and ValueError for an adapter on every expert."""
    shape, updates = shape_of(cfg.models.base), updates_of(cfg)
    of_judge = shape_of(cfg.judge_engine.model) if cfg.judge_engine else None
    return Plan(
        gpu,
        num_gpus(cfg),
        engine_memory(shape_of(cfg.engine.model), cfg.engine, gpu),
        engine_memory(of_judge, cfg.judge_engine, gpu) if of_judge and cfg.judge_engine else None,
        {
            name: update_memory(
                shape, _trained_with(cfg, settings), ranks=cfg.trainer_processes, tokens=longest_row(cfg, settings)
            )
            for name, settings in updates.items()
        },
        host_gb(cfg, shape, of_judge, workload),
        *disk_gb(cfg, shape, workload),
        Clock(cfg, shape, gpu).iteration(workload) if workload else None,
    )


def _trained_with(cfg: MethodSettings, settings: GRPOSettings) -> GRPOSettings:
    """The settings as the trainer sees them: without the KL reference if engines score it."""
    return settings.model_copy(update={"beta": 0.0}) if cfg.reference_by == "engine" else settings


def longest_row(cfg: MethodSettings, settings: GRPOSettings) -> int:
    """Most tokens of a row: a whole context, or a shared prompt with its answers."""
    dialogues, room = getattr(cfg, "dialogues", None), cfg.engine.max_model_len
    return max(min(getattr(dialogues, "context_tokens", None) or room, room), settings.shared_prompt_tokens or 0)


def num_gpus(cfg: MethodSettings) -> int:
    """GPUs that the run needs: engines and trainer take turns on them."""
    engines = cfg.num_engines * cfg.engine.tensor_parallel
    if judge := cfg.judge_engine:
        engines = -(-engines // judge.tensor_parallel) * judge.tensor_parallel + judge.tensor_parallel
    return max(engines, cfg.trainer_processes)


def updates_of(settings: BaseModel, where: str = "") -> dict[str, GRPOSettings]:
    """The settings of every update in a configuration, by their dotted names."""
    found: dict[str, GRPOSettings] = {}
    for name in type(settings).model_fields:
        value: Any = getattr(settings, name)
        if isinstance(value, GRPOSettings):
            found[f"{where}{name}"] = value
        elif isinstance(value, BaseModel):
            found |= updates_of(value, f"{where}{name}.")
    return found


def host_gb(cfg: MethodSettings, shape: Shape, of_judge: Shape | None, workload: Workload | None) -> float:
    """Host memory while an update begins: what the trainer's processes read or keep, and sleeping engines."""
    updates = [_trained_with(cfg, settings) for settings in updates_of(cfg).values()]
    of_engine = shape_of(cfg.engine.model)
    if not updates:  # engines never sleep; they read their weights
        return 2e-9 * (cfg.num_engines * of_engine.params + (of_judge.params if of_judge else 0))
    asleep = cfg.num_engines * asleep_bytes(of_engine, cfg.engine)
    if cfg.judge_engine and of_judge:
        asleep += asleep_bytes(of_judge, cfg.judge_engine)
    read = max(2 * shape.params if s.lora else (4 + (2 if s.beta else 0)) * shape.params for s in updates)
    read *= cfg.trainer_processes
    if cfg.resident_trainer:
        held, players = max(_held_bytes(cfg, shape, s) for s in updates), workload.players if workload else len(updates)
        read = max(read, held) + (players - 1) * held  # one player's first update reads; the others' state is kept
    return 1e-9 * (read + asleep)


def _held_bytes(cfg: MethodSettings, shape: Shape, settings: GRPOSettings) -> float:
    """Host memory that keeps one player: its sharded weights, moments and reference, or an adapter per process."""
    if settings.lora:
        return cfg.trainer_processes * 12 * trained_params(shape, settings)
    return (12 + (2 if settings.beta else 0)) * shape.params


def disk_gb(cfg: MethodSettings, shape: Shape, workload: Workload | None) -> tuple[float, float]:
    """GB on disk of weights and optimizer states: those that the run keeps, and those while an update is written."""
    sizes = [_written_gb(shape, settings) for settings in updates_of(cfg).values()]
    if not sizes:
        return 0.0, 0.0
    weights, state = max(sizes, key=sum)
    players = workload.players if workload else len(sizes)
    once = (weights + state) * (players + 1)
    if cfg.keep_checkpoints == "all":
        return (weights + state) * cfg.iterations * (workload.num_updates if workload else 1), once
    return (weights + state) * players + weights * players * (cfg.iterations - 1), once


def _written_gb(shape: Shape, settings: GRPOSettings) -> tuple[float, float]:
    """GB of an update's weights for engines, and of its optimizer state, which holds float32 weights if those are
    rounded."""
    trained = 1e-9 * trained_params(shape, settings)
    rounded = settings.export_dtype == "bfloat16" and settings.lora is None
    return (2 * trained, 12 * trained) if rounded else (4 * trained, 8 * trained)


def ways_out(cfg: MethodSettings, gpu: GPU) -> Iterator[str]:
    """Single changes after which the plan fits."""
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
    for name, settings in updates_of(cfg).items():
        if not settings.gradient_checkpointing:
            yield f"--set {name}.gradient_checkpointing=true", _changed(cfg, name, gradient_checkpointing=True)
        if settings.micro_batch_size > 1:
            yield f"--set {name}.micro_batch_size=1", _changed(cfg, name, micro_batch_size=1)
    targets = ("q_proj", "k_proj", "v_proj", "o_proj")
    adapters = cfg.model_copy(update={"engine": cfg.engine.model_copy(update={"max_lora_rank": 64})})
    for name in updates_of(cfg):
        adapters = _changed(adapters, name, lora=LoRASettings(rank=64, alpha=128, targets=targets))
    if any(settings.lora is None for settings in updates_of(cfg).values()):
        yield "LoRA on attention (rank 64; engine.max_lora_rank=64)", adapters
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


def _changed(settings: Any, where: str, **values: Any) -> Any:
    """A copy of the settings in which the part with the dotted name `where` has other values."""
    first, _, rest = where.partition(".")
    inner = getattr(settings, first)
    changed = _changed(inner, rest, **values) if rest else inner.model_copy(update=values)
    return settings.model_copy(update={first: changed})
