"""Train the micro models from nothing: `python -m flows.micro.bootstrap base|grader --out FOLDER`.

The order of the phases matters: copying and looking up first, then the roles, then dense grading; everything at once
leaves lookup, and all else, unlearnt. Worlds are drawn anew for every few steps, so that nothing can be memorised.
"""

import argparse
import random
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from flows.micro import drills, grading, transcripts
from flows.micro.bars import BASE, GRADER_LOW, Bar, base_bars, grading_bars, passed
from flows.micro.model import MicroModel, load_checkpoint, save_checkpoint
from flows.micro.optimizer import optimizers
from flows.micro.packing import Batch, collate, pack, tokens_of
from flows.micro.transcripts import Draw
from flows.micro.world import World

ROWS_PER_STEP = 6
FIRST_WORLD = 1_000_000
WORLD_ENTITIES, WORLDS_PER_POOL, TRANSCRIPTS_PER_WORLD = 40, 4, 60
CLIP, WARM_UP_STEPS = 1.0, 100
NUM_REAL_ANSWERS = 2000


@dataclass(frozen=True)
class Phase:
    """`mix` weighs the kinds of transcripts; the learning rate goes linearly from `rate` to `end_rate`."""

    name: str
    num_tokens: float
    rate: float
    end_rate: float
    mix: dict[Draw, float]
    context_share: float = 0.0


COPY: dict[Draw, float] = {drills.copy_drill: 0.4, drills.confusable_drill: 0.6}
ROLES: dict[Draw, float] = {
    transcripts.challenger: 0.26,
    transcripts.solver: 0.30,
    transcripts.rubric_writer: 0.24,
    transcripts.entity_gate: 0.06,
    transcripts.source_gate: 0.14,
}
DRILLS: dict[Draw, float] = {
    drills.lookup_drill: 0.05,
    drills.chain_drill: 0.10,
    drills.confusable_drill: 0.30,
    drills.listing_drill: 0.30,
    drills.presence_drill: 0.40,
}
DRILL: dict[Draw, float] = {**ROLES, **DRILLS, drills.confusable_drill: 1.0}
GRADING: dict[Draw, float] = {**ROLES, **DRILLS, grading.base_grading: 0.15}
BASE_PHASES = (
    Phase("copying", 1.5e6, 3e-3, 3e-3, COPY, 0.02),
    Phase("roles with drill", 4.0e6, 3e-3, 3e-3, DRILL, 0.01),
    Phase("roles with grading", 3.8e6, 3e-3, 7e-4, GRADING),
    Phase("refining", 5.0e6, 2.5e-3, 2e-5, GRADING),
)


def batches(phase: Phase, rng: random.Random, first_world: int) -> Iterator[Batch]:
    draws, weights = list(phase.mix), list(phase.mix.values())
    while True:
        pool = []
        for _ in range(WORLDS_PER_POOL):
            world, first_world = World(first_world, WORLD_ENTITIES), first_world + 1
            pool += [draw(world, rng) for draw in rng.choices(draws, weights, k=TRANSCRIPTS_PER_WORLD)]
        rows = pack([tokens_of(transcript) for transcript in pool])
        rng.shuffle(rows)
        for start in range(0, len(rows) - ROWS_PER_STEP + 1, ROWS_PER_STEP):
            yield collate(rows[start : start + ROWS_PER_STEP], phase.context_share, rng)


def loss_of(model: MicroModel, batch: Batch) -> tuple[torch.Tensor, float]:
    """Weighted mean cross entropy, and the plain mean over what is said with full weight (a number to watch)."""
    hidden = model(batch.ids, batch.positions, batch.bias)
    logits = model.logits(hidden.reshape(-1, hidden.shape[-1])[batch.targets])
    losses = cross_entropy(logits, batch.ids.reshape(-1)[batch.targets + 1], reduction="none")
    said = losses.detach()[batch.weights >= 1.0]
    return (losses * batch.weights).sum() / batch.weights.sum(), said.mean().item()


def train(model: MicroModel, phases: tuple[Phase, ...], seed: int, folder: Path, first_phase: int = 0) -> None:
    """AdamW through the phases, in place; a checkpoint is written after each phase and every few minutes."""
    rng, both = random.Random(seed), optimizers(model)
    step, began = 0, time.time()
    for number, phase in enumerate(phases):
        if number < first_phase:
            continue
        stream, trained, shown = batches(phase, rng, FIRST_WORLD * (number + 1)), 0, 0.0
        while trained < phase.num_tokens:
            share, step = trained / phase.num_tokens, step + 1
            rate = (phase.rate + (phase.end_rate - phase.rate) * share) * min(1.0, step / WARM_UP_STEPS)
            for group in both[0].param_groups + both[1].param_groups:
                group["lr"] = rate
            batch = next(stream)
            loss, said = loss_of(model, batch)
            model.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for optimizer in both:
                optimizer.step()
            trained += batch.ids.numel()
            shown = said if shown == 0.0 else 0.98 * shown + 0.02 * said
            if step % 25 == 0:
                elapsed = time.time() - began
                print(
                    f"{phase.name}: step {step}, {trained / 1e6:.2f}M tokens, {elapsed:.0f} s "
                    f"({time.process_time():.0f} CPU-s), loss on what is said {shown:.4f}, rate {rate:.1e}",
                    flush=True,
                )
            if step % 100 == 0:
                save_checkpoint(model, folder)
        save_checkpoint(model, folder)


def make_base(args: argparse.Namespace) -> Iterator[Bar]:
    model = load_checkpoint(args.unfinished) if args.resume else MicroModel()
    train(model, BASE_PHASES, args.seed, args.unfinished, args.resume)
    yield from base_bars(load_checkpoint(args.unfinished))


def make_grader(args: argparse.Namespace) -> Iterator[Bar]:
    """The dedicated grader starts from the base model, whose own answers are part of what it learns to grade."""
    base = load_checkpoint(args.base)
    draw = grading.grader_grading(grading.real_answers(base, NUM_REAL_ANSWERS, seed=1000 + args.seed))
    phases = (
        Phase("grading", 1.4e6, 2e-3, 2e-3, {draw: 1.0}),
        Phase("grading, slower", 2.2e6, 2e-3, 2e-5, {draw: 1.0}),
    )
    train(load_checkpoint(args.base), phases, args.seed, args.unfinished)
    yield from grading_bars(base, load_checkpoint(args.unfinished), "grader", GRADER_LOW)


def main() -> None:
    """The checkpoint appears in the folder only when its bars hold; until then it is in FOLDER.unfinished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["base", "grader"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, default=BASE, help="the base model that the grader starts from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=int, default=0, metavar="PHASE", help="go on from FOLDER.unfinished")
    args = parser.parse_args()
    args.unfinished = args.out.with_name(f"{args.out.name}.unfinished")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    if not passed(make_base(args) if args.which == "base" else make_grader(args)):
        sys.exit(f"{args.unfinished} misses a quality bar and was left there; try another --seed")
    shutil.rmtree(args.out, ignore_errors=True)
    args.unfinished.rename(args.out)


if __name__ == "__main__":
    main()
