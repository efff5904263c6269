"""Seconds of an iteration, by a roofline model: GPUs reach stated shares of their published rates, and wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from flows.plan.engine import engine_memory
from flows.plan.hardware import GPU, RATES
from flows.plan.shapes import Shape
from flows.plan.workload import BASE, Asked, Lengths, PlannedUpdate, Step, Workload
from flows.profile import MethodSettings
from tasks.training.grpo import FILE_SIZE, GRPOSettings

KINDS = ("generate", "train", "around updates", "load weights into engines")


@dataclass(frozen=True)
class Spent:
    """Seconds of one kind, and those of them in which all GPUs work."""

    kind: str
    seconds: float
    busy: float = 0.0


@dataclass(frozen=True)
class Clock:
    """Computes how long the parts of an iteration take on a kind of GPU."""

    cfg: MethodSettings
    shape: Shape
    gpu: GPU

    def iteration(self, workload: Workload) -> dict[str, Spent]:
        """The seconds of an iteration by kind."""
        found = [
            Spent(spent.kind, spent.seconds * step.times, spent.busy * step.times)
            for step in workload.steps
            for spent in self._step(step, workload)
        ]
        return {
            kind: Spent(
                kind, sum(s.seconds for s in found if s.kind == kind), sum(s.busy for s in found if s.kind == kind)
            )
            for kind in KINDS
        }

    def _step(self, step: Step, workload: Workload) -> Iterator[Spent]:
        for asked in step.asked:
            yield self.asked(
                asked, workload.lengths[asked.role.name], adapter=asked.role.model != BASE and self._adapters(workload)
            )
        if not self._adapters(workload):
            swaps = sum(a.role.model != b.role.model for a, b in pairwise((*step.asked, *step.asked[:1])))
            swaps = max(swaps, 1 if step.update else 0)  # the trained policy is loaded again even if no other model was
            yield Spent("load weights into engines", swaps * self._exported(workload) / RATES.reload_gb_s)
        if step.update:
            yield self.trained(step.update, workload)
            asked = sum(self.asked(a, workload.lengths[a.role.name], adapter=False).seconds for a in step.asked)
            waits = max(0.0, self.behind(step.update.settings) - asked)
            yield Spent("around updates", self.around(step.update.settings) + waits)

    def _adapters(self, workload: Workload) -> bool:
        return all(step.update.settings.lora is not None for step in workload.steps if step.update)

    def _exported(self, workload: Workload) -> float:
        """Gigabytes of the weights that engines load."""
        rounded = all(step.update.settings.export_dtype == "bfloat16" for step in workload.steps if step.update)
        return (2e-9 if rounded else 4e-9) * self.shape.params

    def asked(self, asked: Asked, lengths: Lengths, adapter: bool) -> Spent:
        """Time of a stage on all engines, with its tail: the longest conversations, which run in small batches."""
        engine, each = self.cfg.engine, asked.number / self.cfg.num_engines
        own = lengths.prompt / asked.n + lengths.whole - lengths.prompt
        held = engine_memory(self.shape, engine, self.gpu).cache_tokens / max(own, 1)
        batch = max(1.0, min(engine.max_num_seqs, each, held))
        context = (lengths.prompt + lengths.whole) / 2
        step, full = self._decode(batch, context, adapter)
        steps = each * lengths.turns * lengths.sampled / batch
        computed = asked.prompts / self.cfg.num_engines * lengths.prompt * (1 - lengths.cached)
        computed += each * (lengths.turns - 1) * lengths.added
        flops = computed * (2 * self.shape.active_params + self._attention(lengths.prompt))
        prefill = flops / engine.tensor_parallel / (1e12 * self.gpu.tflops * RATES.prefill)
        tail = 2 * lengths.turns * lengths.sampled * self._decode(max(1.0, batch / 8), context, adapter)[0]
        searches = each * (lengths.turns - 1) * RATES.search_s if lengths.added else 0.0  # beside the engine's steps
        return Spent("generate", max(steps * step + prefill, searches) + tail, steps * full + prefill)

    def _decode(self, batch: float, context: float, adapter: bool) -> tuple[float, float]:
        """Seconds of one decoding step of an engine, and the part of it that the hardware needs."""
        shape, across = self.shape, self.cfg.engine.tensor_parallel
        experts = shape.layers * shape.experts * shape.expert_params
        read = 1 - (1 - shape.experts_used / shape.experts) ** batch
        weights = 2 * (shape.params - experts * (1 - read))
        memory = (weights + batch * context * shape.cache_bytes) / across / (1e9 * self.gpu.memory_gb_s * RATES.decode)
        compute = 2 * shape.active_params * batch / across / (1e12 * self.gpu.tflops * RATES.prefill)
        full = max(memory, compute) / (RATES.lora_decode if adapter else 1)
        return full + RATES.decode_step_s + batch * RATES.decode_row_s, full

    def _attention(self, tokens: float) -> float:
        """FLOPs of a token's attention to the tokens before it, on average over a row of `tokens`."""
        return 2 * self.shape.layers * self.shape.queries * tokens

    def trained(self, update: PlannedUpdate, workload: Workload) -> Spent:
        """Time of an update's passes, forward and backward; all processes work on rows of similar length at a time."""
        s, ranks = update.settings, self.cfg.trainer_processes
        reference = 2 if s.beta and self.cfg.reference_by == "trainer" else 0
        passes = 2 + (2 if s.gradient_checkpointing else 0) + (2 if s.lora else 4) + reference
        flops = rows = 0.0
        for trained in update.conversations:
            lengths = workload.lengths[trained.role.name]
            together = answers_together(s, lengths, workload.group(trained.role.name))
            tokens, datums = lengths.datum_tokens, trained.number * lengths.datums / together
            answers = (together - 1) * (tokens - lengths.prompt)  # that share the prompt of the first
            flops += datums * (tokens + answers) * passes * self.shape.active_params
            flops += datums * passes / 2 * (tokens * self._attention(tokens) + answers * self._attention(2 * tokens))
            rows += datums
        busy = flops / ranks / (1e12 * self.gpu.tflops * RATES.train)
        micro_batches = rows / ranks / s.micro_batch_size
        launches = micro_batches * self.shape.layers * RATES.layer_launch_s
        links = 0.0
        if ranks > 1 and not s.lora:  # two gathers of the policy, one of the reference, and float32 gradients
            moved = (2 * 2 + reference + 4) * self.shape.params * (ranks - 1) / ranks
            links = micro_batches * moved / (1e9 * self.gpu.link_gb_s)
        scored = 0.0
        if s.beta and not reference:
            engines = self.cfg.num_engines * self.cfg.engine.tensor_parallel
            scored = flops * 2 / passes / engines / (1e12 * self.gpu.tflops * RATES.prefill)
        return Spent("train", max(busy, launches, links) + scored, busy + scored)

    def around(self, settings: GRPOSettings) -> float:
        """Seconds of an update beside its passes, while GPUs wait: engines sleep and wake, weights and files move."""
        r, gigabytes = RATES, 1e-9 * self.shape.params
        own = 2 * gigabytes / self.cfg.engine.tensor_parallel
        found = own / 20 + own / 25 + 1  # all engines fall asleep (copying to pinned memory) and wake at once
        if not self.cfg.resident_trainer:
            found += r.start_s + r.end_s
        return found + (self._around_full(settings) if settings.lora is None else self._around_adapter(settings))

    def _around_full(self, settings: GRPOSettings) -> float:
        """With full weights each process reads and writes its own share of weights and moments."""
        r, ranks, gigabytes = RATES, self.cfg.trainer_processes, 1e-9 * self.shape.params
        rounded = settings.export_dtype == "bfloat16"
        policy, state = (2 if rounded else 4) * gigabytes, self._state(settings)
        reference = 2 if settings.beta and self.cfg.reference_by == "trainer" else 0
        whole = (4 + reference) * gigabytes
        writers = ranks if policy > 1e-9 * FILE_SIZE else 1
        found = policy / writers * (1 / r.pageable_gb_s + 1 / r.save_gb_s) + policy / (r.hash_gb_s * r.hash_threads)
        if self.cfg.resident_trainer:  # each process keeps its share in pinned memory; one alone copies empty weights
            found += 2 * (12 + reference) * gigabytes / ranks / self.gpu.host_gb_s
            return found + (whole / r.pageable_gb_s if ranks == 1 else 0.0)
        found += whole / r.pageable_gb_s + whole / r.load_gb_s  # read whole, and sharded on the GPU
        found += state / ranks * (1 / r.load_gb_s + 1 / r.pageable_gb_s)
        return found + state / ranks / r.pageable_gb_s + self._written(state)

    def behind(self, settings: GRPOSettings) -> float:
        """Seconds to write an optimizer's state in the background, while engines generate; the next update waits."""
        if settings.lora is not None or not self.cfg.resident_trainer:
            return 0.0
        return self._written(self._state(settings))

    def _state(self, settings: GRPOSettings) -> float:
        """GB of the optimizer's state: two moments, and float32 weights if engines get rounded ones."""
        return (12e-9 if settings.export_dtype == "bfloat16" else 8e-9) * self.shape.params

    def _written(self, state: float) -> float:
        """Seconds until each process has written its share, and the files are hashed."""
        return state / self.cfg.trainer_processes / RATES.save_gb_s + state / (RATES.hash_gb_s * RATES.hash_threads)

    def _around_adapter(self, settings: GRPOSettings) -> float:
        """With adapters every update reads the base; adapter and moments are small."""
        assert settings.lora is not None
        r, base = RATES, 2e-9 * self.shape.params
        adapter = 4e-9 * self.shape.adapter_params(settings.lora.rank, settings.lora.targets)
        found = base * (1 / r.load_gb_s + 1 / r.pageable_gb_s) + 3 * adapter * (1 / r.save_gb_s + 1 / r.hash_gb_s)
        return found + (0.0 if self.cfg.resident_trainer else 3 * adapter / r.load_gb_s)


def answers_together(settings: GRPOSettings, lengths: Lengths, group: float) -> float:
    """How many answers share a prompt in one row."""
    if settings.shared_prompt_tokens is None or lengths.by_turn:
        return 1.0
    answer = lengths.whole - lengths.prompt
    return max(1.0, min(group, (settings.shared_prompt_tokens - lengths.prompt) // max(answer, 1)))
