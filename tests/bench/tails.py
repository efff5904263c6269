"""What it costs that a stage waits for its longest conversations: `python -m tests.bench.tails` writes
data/bench/tails.md.

A simulation on a clock of its own. Engines take a step in the time that plans assume; who is asked how often, and the
mean lengths, are a profile's workload; lengths of replies are lognormal around those means. The same conversations are
played in three orders:

- stage after stage, as runs do by default;
- prompt by prompt: what follows from one of a step's first prompts (of SCOPE its gates, rubrics, answers and verdicts)
  goes on as soon as its own stage before has ended, as in a run with `ahead = 1`;
- all at once: nothing waits for anything, and only the last tail is left.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from flows.mae.config import Config as Mae
from flows.plan.engine import engine_memory
from flows.plan.hardware import GPU, GPUS, RATES
from flows.plan.plan import make_plan
from flows.plan.seconds import Clock
from flows.plan.shapes import shape_of
from flows.plan.workload import BASE, Asked, Lengths, Step, Workload
from flows.profile import MethodSettings
from flows.scope.config import Config as Scope
from flows.service.site import SOURCE
from tests.bench.gpu_plans import CARDS, gpu_profiles

TABLE = SOURCE / "data" / "bench" / "tails.md"
SPREAD, LONGEST = 0.9, 8.0  # of replies' lengths: deviation of the logarithm; in means, at most
RESERVED = 500  # tokens of the cache that each conversation may grow by before another begins
PROFILES = (
    "scope/qwen3-8b-6gpu-lora",
    "scope/qwen2.5-7b-6gpu-lora",
    "spell/qwen2.5-7b",
    "spell/qwen2.5-7b-1gpu",
    "spice/qwen3-8b-base-8gpu",
    "eapo/qwen3-30b-a3b-instruct",
    "eapo/qwen3-4b-1gpu",
    "mae/qwen2.5-3b-instruct-8gpu-lora",
    "rzero/qwen3-8b-base-8gpu-lora",
)
HEAD = (
    "| profile | conversations of a step | planned, s | stage after stage, s | prompt by prompt | all at once |",
    "|---|---|---|---|---|---|",
)


@dataclass(order=True)
class Conversation:
    """`replies` are the tokens of its turns, `added` those between two turns. Of its `prompt`, `computed` tokens no
    conversation before has computed, and `shared` are in the cache for others as well."""

    stage: int
    number: int
    replies: list[float] = field(compare=False)
    prompt: float = field(compare=False)
    computed: float = field(compare=False)
    shared: float = field(compare=False)
    added: float = field(compare=False)
    chain: int = field(compare=False, default=0)
    place: int = field(compare=False, default=0)  # of its stage in the chain
    context: float = field(compare=False, default=0.0)  # tokens so far


Chain = list[list[Conversation]]  # stages, each of which waits for the whole of the one before


class Engine:
    """An engine whose conversations all get one token a step."""

    def __init__(self, cfg: MethodSettings, gpu: GPU, adapter: bool) -> None:
        shape = shape_of(cfg.engine.model)
        self._clock, self._adapter = Clock(cfg, shape, gpu), adapter
        self._room, self._most = engine_memory(shape, cfg.engine, gpu).cache_tokens, cfg.engine.max_num_seqs
        self._params, self._flops = shape.active_params, cfg.engine.tensor_parallel * 1e12 * gpu.tflops * RATES.prefill
        self.now = self._steps = self._read = self._shared = 0.0  # tokens that a step reads; fewer are in the cache
        self._turns: list[tuple[float, Conversation]] = []  # each with the step at which it ends

    @property
    def num_active(self) -> int:
        return len(self._turns)

    def has_room(self, conversation: Conversation) -> bool:
        held = self._read - self._shared + conversation.prompt - conversation.shared
        needed = held + RESERVED * (self.num_active + 1)
        return self.num_active < self._most and (needed <= self._room or not self.num_active)

    def begin(self, conversation: Conversation) -> None:
        self._shared += conversation.shared
        self._take_turn(conversation, conversation.prompt, conversation.computed)

    def _take_turn(self, conversation: Conversation, added: float, computed: float) -> None:
        conversation.context, self._read = conversation.context + added, self._read + added
        self.now += computed * (2 * self._params + self._clock._attention(computed)) / self._flops
        heapq.heappush(self._turns, (self._steps + conversation.replies[0], conversation))

    @property
    def _step_s(self) -> float:
        return self._clock._decode(self.num_active, self._read / self.num_active, self._adapter)[0]

    @property
    def next_end(self) -> float:
        return self.now + (self._turns[0][0] - self._steps) * self._step_s if self._turns else math.inf

    def work_until(self, time: float) -> None:
        if self._turns and time > self.now:
            steps = (time - self.now) / self._step_s
            self._steps, self._read = self._steps + steps, self._read + steps * self.num_active
        self.now = max(self.now, time)

    def ended(self) -> Iterator[Conversation]:
        """Conversations that are over; the others go on with their next turn."""
        while self._turns and self._turns[0][0] <= self._steps + 1e-6:
            conversation = heapq.heappop(self._turns)[1]
            conversation.context += conversation.replies.pop(0)
            if conversation.replies:
                self._take_turn(conversation, conversation.added, conversation.added)
            else:
                self._read, self._shared = self._read - conversation.context, self._shared - conversation.shared
                yield conversation


def seconds(chains: Sequence[Chain], engines: Sequence[Engine]) -> float:
    """Until all chains have ended. Of what may begin, earlier stages go first, on the engine that has least to do."""
    waiting: list[Conversation] = []
    left = [[len(stage) for stage in chain] for chain in chains]
    now = 0.0

    def release(chain: int, place: int) -> None:
        for conversation in chains[chain][place]:
            conversation.chain, conversation.place = chain, place
            heapq.heappush(waiting, conversation)

    for chain in range(len(chains)):
        release(chain, 0)
    while True:
        while waiting and (free := [engine for engine in engines if engine.has_room(waiting[0])]):
            engine = min(free, key=lambda engine: engine.num_active)
            engine.work_until(now)
            engine.begin(heapq.heappop(waiting))
        engine = min(engines, key=lambda engine: engine.next_end)
        if engine.next_end == math.inf:
            return max(engine.now for engine in engines)
        now = engine.next_end
        engine.work_until(now)
        for conversation in engine.ended():
            stages, place = left[conversation.chain], conversation.place
            stages[place] -= 1
            if not stages[place] and place + 1 < len(stages):
                release(conversation.chain, place + 1)


# ---- the same conversations in three orders -------------------------------------------------------------------------


def stage_after_stage(stages: list[list[Conversation]], units: int) -> list[Chain]:
    return [stages]


def prompt_by_prompt(stages: list[list[Conversation]], units: int) -> list[Chain]:
    """Every stage is dealt evenly to the prompts of the first one, in order."""
    dealt: list[Chain] = [[] for _ in range(units)]
    for stage in stages:
        for unit, chain in enumerate(dealt):
            if own := [c for c in stage if c.number * units // len(stage) == unit]:
                chain.append(own)
    return dealt


def all_at_once(stages: list[list[Conversation]], units: int) -> list[Chain]:
    return [[stage] for stage in stages]


Order = Callable[[list[list[Conversation]], int], list[Chain]]


def conversations(rng: random.Random, asked: Asked, lengths: Lengths, stage: int, room: int) -> list[Conversation]:
    """Of a stage. Those behind one prompt share its tokens."""
    per_prompt, found = max(1, round(asked.n)), list[Conversation]()
    for number in range(round(asked.number)):
        turns, left = 1, room - lengths.prompt
        while rng.random() < 1 - 1 / lengths.turns and turns < 3 * lengths.turns:
            turns += 1
        replies = [min(_length(rng, lengths.sampled), left / turns) for _ in range(turns)]
        computed = 0.0 if number % per_prompt else lengths.prompt * (1 - lengths.cached)
        shared = lengths.prompt * (1 - 1 / per_prompt)
        found.append(Conversation(stage, number, replies, lengths.prompt, computed, shared, lengths.added))
    return found


def _length(rng: random.Random, mean: float) -> float:
    return max(1.0, min(LONGEST * mean, rng.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD)))


# ---- profiles -------------------------------------------------------------------------------------------------------


def rows() -> Iterator[str]:
    for name, cfg in gpu_profiles():
        if name not in PROFILES:
            continue
        workload = cfg.workload()
        assert workload is not None
        gpu = next(GPUS[card] for card in CARDS if make_plan(cfg, GPUS[card]).verdict != "no")
        steps = [step for step in workload.steps if len(step.asked) > 1]  # a single stage overlaps with nothing
        if isinstance(cfg, Scope):  # of the pool's draws the first and the last: eight batches at once, and one
            asking, *draws, solving = steps
            steps = [asking, draws[0], draws[-1], solving]
        if isinstance(cfg, Mae):  # new questions with their trials, then answers with their marks
            proposed, answered, _, *others, marks = steps[0].asked
            steps = [replace(steps[0], asked=asked) for asked in ((proposed, *others), (answered, marks))]
        for step in steps:
            yield _row(name, cfg, gpu, workload, step)


def _row(name: str, cfg: MethodSettings, gpu: GPU, workload: Workload, step: Step) -> str:
    adapters = all(s.update.settings.lora is not None for s in workload.steps if s.update)
    one_model = all(a.role.model == b.role.model for a, b in pairwise(step.asked))

    def played(order: Order) -> float:
        rng, room = random.Random(0), cfg.engine.max_model_len
        each = enumerate(step.asked)
        stages = [conversations(rng, a, workload.lengths[a.role.name], i, room) for i, a in each]
        engines = [Engine(cfg, gpu, adapters) for _ in range(cfg.num_engines)]
        return seconds(order([stage for stage in stages if stage], round(step.asked[0].prompts)), engines)

    today = played(stage_after_stage)
    mixes = adapters or one_model
    shares = [f"{played(order) / today:.2f}" for order in (prompt_by_prompt, all_at_once)] if mixes else ["-", "-"]
    clock, lengths = Clock(cfg, shape_of(cfg.models.base), gpu), workload.lengths
    asked = [clock.asked(a, lengths[a.role.name], adapter=adapters and a.role.model != BASE) for a in step.asked]
    planned = sum(spent.seconds for spent in asked)
    said = ", ".join(f"{a.number:,.0f} {a.role.name}" for a in step.asked)
    return f"| {name} | {said} | {planned:,.0f} | {today:,.0f} | {' | '.join(shares)} |"


def main() -> None:
    found: list[str] = [*HEAD]
    for row in rows():
        print(row, flush=True)
        found.append(row)
    TABLE.write_text("\n".join(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
