"""Seconds of an iteration, from a roofline model.

GPUs reach given shares of their published rates, and otherwise wait
(`flows.plan.hardware.RATES`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from flows.plan.engine import engine_memory
from flows.plan.hardware import DEFAULT_NODES, GPU, RATES, Nodes
from flows.plan.shapes import Shape
from flows.plan.trainer import reference_bytes
from flows.settings.profile import MethodSettings
from flows.settings.workload import (
    BASE,
    Lengths,
    PlannedConversations,
    PlannedUpdate,
    Step,
    Workload,
)
from tasks.training.grpo import FILE_SIZE, GRPOSettings

KINDS = ("generate", "train", "around updates", "load weights into engines")


@dataclass(frozen=True)
class Duration:
    """Seconds of one kind, and how many of them all GPUs are busy."""

    kind: str
    seconds: float
    busy: float = 0.0


@dataclass(frozen=True)
class DecodingStep:
    """Seconds of an engine's step, and how many of them the GPU is busy."""

    seconds: float
    busy: float


@dataclass(frozen=True)
class Clock:
    """Computes how long the parts of an iteration take on a kind of GPU."""

    cfg: MethodSettings
    shape: Shape
    gpu: GPU
    nodes: Nodes = DEFAULT_NODES

    def iteration(self, workload: Workload) -> dict[str, Duration]:
        """The seconds of an iteration by kind, for each of `KINDS`."""
        parts = [
            Duration(spent.kind, spent.seconds * step.times, spent.busy * step.times)
            for step in workload.steps
            for spent in self._step(step, workload)
        ]
        return {
            kind: Duration(
                kind,
                seconds=sum(part.seconds for part in parts if part.kind == kind),
                busy=sum(part.busy for part in parts if part.kind == kind),
            )
            for kind in KINDS
        }

    def _step(self, step: Step, workload: Workload) -> Iterator[Duration]:
        """Yield the parts of one pass through a step: its stages, swaps of weights, and the
        update."""
        for conversations in step.conversations:
            yield self.generated(
                conversations,
                workload.lengths[conversations.role.name],
                adapter=conversations.role.model != BASE and self._adapters(workload),
            )
        if not self._adapters(workload):
            swaps = sum(
                a.role.model != b.role.model
                for a, b in pairwise((*step.conversations, *step.conversations[:1]))
            )
            if step.update:  # the trained policy must be loaded even if no other model was used
                swaps = max(swaps, 1)
            yield Duration(
                "load weights into engines", swaps * self._exported(workload) / RATES.reload_gb_s
            )
        if step.update:
            yield self.trained(step.update, workload)
            generating = sum(
                self.generated(each, workload.lengths[each.role.name], adapter=False).seconds
                for each in step.conversations
            )
            waits = max(0.0, self.behind(step.update.settings) - generating)
            yield Duration("around updates", self.around(step.update.settings) + waits)

    def _adapters(self, workload: Workload) -> bool:
        return all(step.update.settings.lora is not None for step in workload.steps if step.update)

    def _exported(self, workload: Workload) -> float:
        """Gigabytes of the weights that engines load."""
        if all(
            step.update.settings.export_dtype == "bfloat16"
            for step in workload.steps
            if step.update
        ):
            return 2e-9 * self.shape.params
        return 4e-9 * self.shape.params

    def generated(
        self, conversations: PlannedConversations, lengths: Lengths, adapter: bool
    ) -> Duration:
        """Seconds of a stage that samples `conversations` on all engines, with its tail.

        The tail consists of the longest conversations, which run in small batches.
        """
        engine = self.cfg.engine
        each = conversations.number / self.cfg.num_engines
        # a group's conversations share their prompt's KV cache
        own = lengths.prompt / conversations.n + lengths.whole - lengths.prompt
        room = engine_memory(self.shape, engine, self.gpu).cache_tokens / max(own, 1)
        batch = max(1.0, min(engine.max_num_seqs, each, room))
        context = (lengths.prompt + lengths.whole) / 2
        decoding = self._decode(batch, context, adapter)
        steps = each * lengths.turns * lengths.sampled / batch
        computed = (
            conversations.prompts / self.cfg.num_engines * lengths.prompt * (1 - lengths.cached)
        )
        computed += each * (lengths.turns - 1) * lengths.added
        flops = computed * (2 * self.shape.active_params + self._attention(lengths.prompt))
        prefill = flops / engine.tensor_parallel / (1e12 * self.gpu.tflops * RATES.prefill)
        in_tail = self._decode(max(1.0, batch / 8), context, adapter)
        tail = 2 * lengths.turns * lengths.sampled * in_tail.seconds
        searches = 0.0  # these run at the same time as the engine's steps
        if lengths.added:
            searches = each * (lengths.turns - 1) * RATES.search_s
        return Duration(
            "generate",
            seconds=max(steps * decoding.seconds + prefill, searches) + tail,
            busy=steps * decoding.busy + prefill,
        )

    def _decode(self, batch: float, context: float, adapter: bool) -> DecodingStep:
        """One decoding step of an engine with `batch` conversations of `context` tokens."""
        shape = self.shape
        across = self.cfg.engine.tensor_parallel
        experts = shape.layers * shape.experts * shape.expert_params
        read = 1 - (1 - shape.experts_used / shape.experts) ** batch
        weights = 2 * (shape.params - experts * (1 - read))
        memory = (
            (weights + batch * context * shape.cache_bytes)
            / across
            / (1e9 * self.gpu.memory_gb_s * RATES.decode)
        )
        compute = (
            2 * shape.active_params * batch / across / (1e12 * self.gpu.tflops * RATES.prefill)
        )
        busy = max(memory, compute)
        if adapter:
            busy /= RATES.lora_decode
        return DecodingStep(busy + RATES.decode_step_s + batch * RATES.decode_row_s, busy)

    def _attention(self, tokens: float) -> float:
        """Mean FLOPs of a token's attention to earlier tokens, in a row of `tokens`."""
        return 2 * self.shape.layers * self.shape.queries * tokens

    def trained(self, update: PlannedUpdate, workload: Workload) -> Duration:
        """Seconds of an update's forward and backward passes, and of scoring the KL reference.

        At any time, all processes work on rows of similar length.
        """
        s = update.settings
        ranks = self.cfg.trainer_processes
        reference = self._reference_bytes(s)
        passes = self._passes(s)
        flops = 0.0
        rows = 0.0
        for trained in update.conversations:
            lengths = workload.lengths[trained.role.name]
            together = answers_together(s, lengths, workload.group(trained.role.name))
            tokens = lengths.datum_tokens
            datums = trained.number * lengths.datums / together
            # tokens of the other answers, which share the first one's prompt
            answers = (together - 1) * (tokens - lengths.prompt)
            flops += datums * (tokens + answers) * passes * self.shape.active_params
            flops += (
                datums
                * passes
                / 2
                * (tokens * self._attention(tokens) + answers * self._attention(2 * tokens))
            )
            rows += datums
        busy = flops / ranks / (1e12 * self.gpu.tflops * RATES.train)
        micro_batches = rows / ranks / s.micro_batch_size
        launches = micro_batches * self.shape.layers * RATES.layer_launch_s
        links = 0.0
        # two gathers of the policy, one of the reference, and a reduction of float32 gradients
        if ranks > 1 and not s.lora:
            moved = 1e-9 * (2 * 2 + reference + 4) * self.shape.params
            links = micro_batches * self.nodes.gather_s(moved, ranks, self.gpu)
        scored = 0.0
        if s.beta and not reference:
            engines = self.cfg.num_engines * self.cfg.engine.tensor_parallel
            scored = flops * 2 / passes / engines / (1e12 * self.gpu.tflops * RATES.prefill)
        return Duration("train", max(busy, launches, links) + scored, busy + scored)

    def _reference_bytes(self, settings: GRPOSettings) -> int:
        """Bytes of the trainer's KL reference per parameter; 0 if engines score it."""
        if self.cfg.reference_by == "engine":
            return 0
        return reference_bytes(settings)

    def _passes(self, settings: GRPOSettings) -> int:
        """FLOPs of an update per parameter and token.

        A forward pass takes 2, a backward pass 4, or 2 if an adapter is trained on frozen weights.
        Recomputation and the reference are forward passes.
        """
        passes = 2 + 4
        if settings.lora:
            passes = 2 + 2
        if settings.gradient_checkpointing:
            passes += 2
        if self._reference_bytes(settings):
            passes += 2
        return passes

    def around(self, settings: GRPOSettings) -> float:
        """Seconds of an update outside its passes, in which GPUs wait.

        Engines sleep and wake up; weights and files move.
        """
        r = RATES
        gigabytes = 1e-9 * self.shape.params
        own = 2 * gigabytes / self.cfg.engine.tensor_parallel
        # all engines fall asleep (copying weights to pinned memory) at once, and wake up at once
        seconds = own / 20 + own / 25 + 1
        if not self.cfg.resident_trainer:
            seconds += r.start_s + r.end_s
        if settings.lora is None:
            return seconds + self._around_full(settings)
        return seconds + self._around_adapter(settings)

    def _around_full(self, settings: GRPOSettings) -> float:
        """Seconds for full weights: each process reads and writes its share of weights and
        moments."""
        r = RATES
        ranks = self.cfg.trainer_processes
        gigabytes = 1e-9 * self.shape.params
        policy = 4 * gigabytes
        if settings.export_dtype == "bfloat16":
            policy = 2 * gigabytes
        state = self._state(settings)
        reference = self._reference_bytes(settings)
        whole = (4 + reference) * gigabytes
        writers = 1
        if policy > 1e-9 * FILE_SIZE:  # processes write several files at once
            writers = ranks
        seconds = policy / writers * (1 / r.pageable_gb_s + 1 / r.save_gb_s)
        seconds += policy / (r.hash_gb_s * r.hash_threads)
        # each process keeps its share in pinned memory; a single process copies empty weights
        if self.cfg.resident_trainer:
            seconds += 2 * (12 + reference) * gigabytes / ranks / self.gpu.host_gb_s
            if ranks == 1:
                seconds += whole / r.pageable_gb_s
            return seconds
        # weights are read whole, then sharded on the GPU
        seconds += whole / r.pageable_gb_s + whole / r.load_gb_s
        seconds += state / ranks * (1 / r.load_gb_s + 1 / r.pageable_gb_s)
        return seconds + state / ranks / r.pageable_gb_s + self._written(state)

    def behind(self, settings: GRPOSettings) -> float:
        """Seconds to write an optimizer's state in the background, while engines generate.

        The next update waits for it.
        """
        if settings.lora is not None or not self.cfg.resident_trainer:
            return 0.0
        return self._written(self._state(settings))

    def _state(self, settings: GRPOSettings) -> float:
        """GB of the optimizer's state: two moments, and float32 weights if exports are rounded."""
        if settings.export_dtype == "bfloat16":
            return 12e-9 * self.shape.params
        return 8e-9 * self.shape.params

    def _written(self, state: float) -> float:
        """Seconds until each process has written its share and the files are hashed."""
        return state / self.cfg.trainer_processes / RATES.save_gb_s + state / (
            RATES.hash_gb_s * RATES.hash_threads
        )

    def _around_adapter(self, settings: GRPOSettings) -> float:
        """Seconds for adapters: every update reads the base; adapter and moments are small."""
        assert settings.lora is not None
        r = RATES
        base = 2e-9 * self.shape.params
        adapter = 4e-9 * self.shape.adapter_params(settings.lora.rank, settings.lora.targets)
        seconds = base * (1 / r.load_gb_s + 1 / r.pageable_gb_s)
        seconds += 3 * adapter * (1 / r.save_gb_s + 1 / r.hash_gb_s)
        if not self.cfg.resident_trainer:
            seconds += 3 * adapter / r.load_gb_s
        return seconds


def answers_together(settings: GRPOSettings, lengths: Lengths, group: float) -> float:
    """How many answers share a prompt in one row: as many of a prompt's `group` answers as fit into
    `settings.shared_prompt_tokens`, but at least 1."""
    if settings.shared_prompt_tokens is None or lengths.by_turn:
        return 1.0
    answer = lengths.whole - lengths.prompt
    return max(1.0, min(group, (settings.shared_prompt_tokens - lengths.prompt) // max(answer, 1)))
