"""Train the micro models from scratch: `python -m data.micro.training.bootstrap base|grader|spell
--out FOLDER`.

The order of the phases matters: copying and lookup first, then the roles, then dense grading. If
everything is trained at once, the model learns neither lookup nor anything else. New worlds are
drawn every few steps, so nothing can be memorised.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from data.micro.training import asking, drills, grading, reading, screening, transcripts
from data.micro.training.bars import BASE, GRADER_LOW, Bar, base_bars, grading_bars, passed
from data.micro.training.model import MicroModel, load_checkpoint, save_checkpoint, with_more_words
from data.micro.training.optimizer import optimizers
from data.micro.training.packing import ROW_TOKENS, Batch, collate, pack, tokens_of
from data.micro.training.reading_bars import reading_bars
from data.micro.training.tokenizer import WORDS
from data.micro.training.transcripts import Draw
from flows.worlds.encyclopaedia import World

ROWS_PER_STEP = 6
FIRST_WORLD = 1_000_000
WORLD_ENTITIES = 40
WORLDS_PER_POOL = 4
TRANSCRIPTS_PER_WORLD = 60
CLIP = 1.0
WARM_UP_STEPS = 100
NUM_REAL_ANSWERS = 2000


@dataclass(frozen=True)
class Phase:
    """A phase of training, with a `mix` of weighted kinds of transcripts.

    The learning rate changes linearly from `rate` to `end_rate`. `context_share` is the share of
    context tokens (not said by the model) that it also learns to predict. `row_tokens` must be
    enough for the longest transcript; shorter rows cost less.
    """

    name: str
    num_tokens: float
    rate: float
    end_rate: float
    mix: dict[Draw, float]
    context_share: float = 0.0
    row_tokens: int = ROW_TOKENS

    def rate_at(self, trained: int) -> float:
        return self.rate + (self.end_rate - self.rate) * trained / self.num_tokens


COPY: dict[Draw, float] = {drills.copy_drill: 0.4, drills.confusable_drill: 0.6}
ROLES: dict[Draw, float] = {
    transcripts.challenger: 0.34,
    transcripts.solver: 0.26,
    screening.rubric_writer: 0.20,
    screening.entity_gate: 0.06,
    screening.source_gate: 0.14,
}
DRILLS: dict[Draw, float] = {
    drills.lookup_drill: 0.20,
    drills.chain_drill: 0.10,
    drills.confusable_drill: 0.15,
    drills.listing_drill: 0.25,
}
DRILL: dict[Draw, float] = {**ROLES, **DRILLS, drills.confusable_drill: 1.0}
GRADING: dict[Draw, float] = {**ROLES, **DRILLS, grading.base_grading: 0.06}
ALONE: dict[Draw, float] = {**ROLES, transcripts.challenger: 0.45, grading.base_grading: 0.06}
BASE_PHASES = (
    Phase("copying", 1.2e6, 3e-3, 3e-3, COPY, 0.02),
    Phase("roles with drill", 3.5e6, 3e-3, 3e-3, DRILL, 0.01),
    Phase("roles with grading", 4.5e6, 3e-3, 1.2e-3, GRADING),
    Phase("roles alone", 3.5e6, 1.2e-3, 2e-5, ALONE),
)


sound_questioner = partial(asking.questioner, habits=reading.SOUND)
sound_responder = partial(reading.responder, habits=reading.SOUND)
sound_verifier = partial(reading.verifier, habits=reading.SOUND)
READING_DRILL: dict[Draw, float] = {
    sound_questioner: 0.40,
    sound_responder: 0.32,
    sound_verifier: 0.35,
    reading.small_skills: 0.30,
}
# slowest to learn: the entity to ask about, and the letter of a value
READING_LETTERS: dict[Draw, float] = {
    sound_questioner: 0.50,
    sound_responder: 0.35,
    sound_verifier: 0.15,
    reading.small_skills: 0.50,
}
ASKING: dict[Draw, float] = {
    sound_questioner: 0.70,
    reading.responder: 0.25,
    reading.verifier: 0.10,
}
READING: dict[Draw, float] = {
    asking.questioner: 0.40,
    reading.responder: 0.40,
    reading.responder_without_documents: 0.04,
    reading.verifier: 0.20,
    reading.small_skills: 0.05,
}
READING_PHASES = (
    Phase("reading, soundly", 1.8e6, 2e-3, 2e-3, READING_DRILL),
    Phase("reading, soundly, letters", 1.2e6, 2e-3, 2e-3, READING_LETTERS),
    Phase("reading, as in self-play", 1.4e6, 2e-3, 2e-5, READING),
    Phase("asking", 1.4e6, 2e-3, 1.5e-3, ASKING),
    Phase("asking and reading", 1.2e6, 1.5e-3, 2e-5, READING),
)


def batches(
    phase: Phase, rng: random.Random, first_world: int, words: tuple[str, ...] = WORDS
) -> Iterator[Batch]:
    draws = list(phase.mix)
    weights = list(phase.mix.values())
    while True:
        pool = []
        for _ in range(WORLDS_PER_POOL):
            world = World(first_world, WORLD_ENTITIES)
            first_world = first_world + 1
            pool += [
                draw(world, rng) for draw in rng.choices(draws, weights, k=TRANSCRIPTS_PER_WORLD)
            ]
        rows = pack([tokens_of(transcript, words) for transcript in pool], phase.row_tokens)
        rng.shuffle(rows)
        for start in range(0, len(rows) - ROWS_PER_STEP + 1, ROWS_PER_STEP):
            of_step = rows[start : start + ROWS_PER_STEP]
            yield collate(of_step, phase.context_share, rng, phase.row_tokens)


def loss_of(model: MicroModel, batch: Batch) -> tuple[torch.Tensor, float]:
    """The weighted mean cross entropy (nats per token) and, for monitoring, the unweighted mean
    over tokens with a weight of at least 1."""
    hidden = model(batch.ids, batch.positions, batch.bias)
    logits = model.logits(hidden.reshape(-1, hidden.shape[-1])[batch.targets])
    losses = cross_entropy(logits, batch.ids.reshape(-1)[batch.targets + 1], reduction="none")
    said = losses.detach()[batch.weights >= 1.0]
    return (losses * batch.weights).sum() / batch.weights.sum(), said.mean().item()


def step(model: MicroModel, both: list[torch.optim.Optimizer], batch: Batch, rate: float) -> float:
    """Update all parameters once; return the mean loss over tokens with a weight of at least 1."""
    for optimizer in both:
        for group in optimizer.param_groups:
            group["lr"] = rate
    loss, said = loss_of(model, batch)
    model.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    for optimizer in both:
        optimizer.step()
    return said


def train(
    model: MicroModel, phases: tuple[Phase, ...], seed: int, folder: Path, first_phase: int = 0
) -> None:
    """Train the model in place through the phases from `first_phase` on; save a checkpoint every
    few minutes and after each phase."""
    rng = random.Random(seed)
    both = optimizers(model)
    steps = 0
    began = time.time()
    for number, phase in enumerate(phases[first_phase:], first_phase):
        stream = batches(phase, rng, FIRST_WORLD * (number + 1), model.words)
        trained = 0
        mean_loss = None
        while trained < phase.num_tokens:
            steps += 1
            batch = next(stream)
            rate = phase.rate_at(trained) * min(1.0, steps / WARM_UP_STEPS)
            loss = step(model, both, batch, rate)
            trained += batch.ids.numel()
            if mean_loss is None:
                mean_loss = loss
            mean_loss = 0.98 * mean_loss + 0.02 * loss
            if steps % 50 == 0:
                print(
                    f"{phase.name}: step {steps}, {trained / 1e6:.2f}M tokens,"
                    f" {time.time() - began:.0f} s ({time.process_time():.0f} CPU-s), loss on what"
                    f" is said {mean_loss:.4f}, rate {rate:.1e}",
                    flush=True,
                )
            if steps % 500 == 0:
                save_checkpoint(model, folder)
        save_checkpoint(model, folder)


def make_base(unfinished: Path, seed: int, resume: int) -> Iterator[Bar]:
    model = load_checkpoint(unfinished) if resume else MicroModel()
    train(model, BASE_PHASES, seed, unfinished, resume)
    yield from base_bars(load_checkpoint(unfinished))


def make_grader(unfinished: Path, seed: int, resume: int, base_folder: Path) -> Iterator[Bar]:
    """Train the dedicated grader, starting from the base model, whose answers are part of what it
    learns to grade; yield its bars."""
    base = load_checkpoint(base_folder)
    draw = grading.grader_grading(grading.real_answers(base, NUM_REAL_ANSWERS, seed=1000 + seed))
    phases = (
        Phase("grading", 1.4e6, 2e-3, 2e-3, {draw: 1.0}),
        Phase("grading, slower", 2.2e6, 2e-3, 2e-5, {draw: 1.0}),
    )
    train(load_checkpoint(unfinished if resume else base_folder), phases, seed, unfinished, resume)
    yield from grading_bars(base, load_checkpoint(unfinished), "grader", GRADER_LOW)


def make_spell(unfinished: Path, seed: int, resume: int, base_folder: Path) -> Iterator[Bar]:
    """Train one model for three roles, starting from the base model, which can look things up; it
    learns more words. Yield its bars."""
    base = load_checkpoint(unfinished if resume else base_folder)
    train(with_more_words(base, reading.MORE_WORDS), READING_PHASES, seed, unfinished, resume)
    yield from reading_bars(load_checkpoint(unfinished))


def main() -> None:
    """Train a model; the checkpoint stays in FOLDER.unfinished unless all its bars hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["base", "grader", "spell"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--base", type=Path, default=BASE, help="base model that grader and spell start from"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--resume", type=int, default=0, metavar="PHASE", help="resume FOLDER.unfinished here"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    unfinished = args.out.with_name(f"{args.out.name}.unfinished")
    makers = {
        "base": partial(make_base, unfinished, args.seed, args.resume),
        "grader": partial(make_grader, unfinished, args.seed, args.resume, args.base),
        "spell": partial(make_spell, unfinished, args.seed, args.resume, args.base),
    }
    bars = makers[args.which]()
    if not passed(bars):
        sys.exit(
            f"{unfinished} misses a quality bar and is kept for inspection; try another --seed"
        )
    shutil.rmtree(args.out, ignore_errors=True)
    unfinished.rename(args.out)


if __name__ == "__main__":
    main()
