"""Train the micro models from nothing: `python -m flows.micro.bootstrap base|grader --out FOLDER`.

The order of the phases matters: looking a fact up in a document first, then the roles, then dense grading. Everything at once
leaves lookup, and with it all else, unlearnt. Worlds are drawn anew for every few steps, so that nothing can be memorised.
"""

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from flows.micro import grading, transcripts
from flows.micro.model import MicroModel, load_checkpoint, save_checkpoint
from flows.micro.optimizer import optimizers
from flows.micro.packing import Batch, collate, pack, tokens_of
from flows.micro.transcripts import Draw
from flows.micro.world import World

ROW_TOKENS, ROWS_PER_STEP = 512, 6
FIRST_WORLD = 1_000_000
WORLD_ENTITIES, WORLDS_PER_POOL, TRANSCRIPTS_PER_WORLD = 40, 4, 60
CLIP, WARM_UP_STEPS = 1.0, 100


@dataclass(frozen=True)
class Phase:
    """`mix` weighs the kinds of transcripts; the learning rate goes linearly from `rate` to `end_rate`."""

    name: str
    num_tokens: float
    rate: float
    end_rate: float
    mix: dict[Draw, float]


COPY: dict[Draw, float] = {transcripts.copy_drill: 0.7, transcripts.lookup_drill: 0.3}
LOOKUP: dict[Draw, float] = {transcripts.lookup_drill: 0.7, transcripts.chain_drill: 0.3}
ROLES: dict[Draw, float] = {
    transcripts.challenger: 0.26,
    transcripts.solver: 0.32,
    transcripts.rubric_writer: 0.20,
    transcripts.entity_gate: 0.08,
    transcripts.source_gate: 0.10,
}
BASE_PHASES = (
    Phase("copying", 1.0e6, 3e-3, 3e-3, COPY),
    Phase("lookup", 2.6e6, 3e-3, 3e-3, LOOKUP),
    Phase("roles with drill", 3.5e6, 3e-3, 3e-3, {**ROLES, transcripts.lookup_drill: 0.1, transcripts.chain_drill: 0.2}),
    Phase("roles with grading", 5.5e6, 3e-3, 3e-5, {**ROLES, transcripts.chain_drill: 0.05, grading.base_grading: 0.25}),
)


def batches(mix: dict[Draw, float], rng: random.Random, first_world: int) -> Iterator[Batch]:
    draws, weights = list(mix), list(mix.values())
    while True:
        pool = []
        for _ in range(WORLDS_PER_POOL):
            world, first_world = World(first_world, WORLD_ENTITIES), first_world + 1
            pool += [draw(world, rng) for draw in rng.choices(draws, weights, k=TRANSCRIPTS_PER_WORLD)]
        rows = pack([tokens_of(transcript) for transcript in pool], ROW_TOKENS)
        rng.shuffle(rows)
        for start in range(0, len(rows) - ROWS_PER_STEP + 1, ROWS_PER_STEP):
            yield collate(rows[start : start + ROWS_PER_STEP], ROW_TOKENS, rng)


def loss_of(model: MicroModel, batch: Batch) -> tuple[torch.Tensor, float]:
    """Weighted mean cross entropy, and the plain mean over what is said with full weight (a number to watch)."""
    hidden = model(batch.ids_BT, batch.positions_BT, batch.bias_BTS)
    logits = model.logits(hidden.reshape(-1, hidden.shape[-1])[batch.targets_N])
    losses = F.cross_entropy(logits, batch.ids_BT.reshape(-1)[batch.targets_N + 1], reduction="none")
    said = losses.detach()[batch.weights_N >= 1.0]
    return (losses * batch.weights_N).sum() / batch.weights_N.sum(), said.mean().item()


def train(model: MicroModel, phases: tuple[Phase, ...], seed: int, folder: Path, first_phase: int = 0) -> None:
    """AdamW through the phases, in place; a checkpoint is written after each phase and every few minutes."""
    rng, both = random.Random(seed), optimizers(model)
    step, began = 0, time.time()
    for number, phase in enumerate(phases):
        if number < first_phase:
            continue
        stream, trained, shown = batches(phase.mix, rng, FIRST_WORLD * (number + 1)), 0, 0.0
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
            trained += batch.ids_BT.numel()
            shown = said if shown == 0.0 else 0.98 * shown + 0.02 * said
            if step % 50 == 0:
                elapsed = time.time() - began
                print(f"{phase.name}: step {step}, {trained / 1e6:.2f}M tokens, {elapsed:.0f} s "
                      f"({time.process_time():.0f} CPU-s), loss on what is said {shown:.4f}, rate {rate:.1e}", flush=True)
            if step % 200 == 0:
                save_checkpoint(model, folder)
        save_checkpoint(model, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["base", "grader"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=int, default=0, metavar="PHASE", help="go on from FOLDER with this phase")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = load_checkpoint(args.out) if args.resume else MicroModel()
    train(model, BASE_PHASES, args.seed, args.out, args.resume)


if __name__ == "__main__":
    main()
