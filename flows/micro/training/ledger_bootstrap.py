"""Train the micro model of the ledgers: `python -m flows.micro.training.ledger_bootstrap --out FOLDER`.

It starts from the encyclopaedia's base model, which can look things up and copy them, and learns more words. Then the
roles: sums alone and exact reasoning first, all of it as it will be played last.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from flows.micro.training import ledger_transcripts as transcripts
from flows.micro.training.bars import BASE, Bar, passed
from flows.micro.training.bootstrap import Phase, train
from flows.micro.training.ledger_bars import ledger_bars
from flows.micro.training.model import load_checkpoint, with_more_words
from flows.micro.training.transcripts import Draw

DRILL: dict[Draw, float] = {
    transcripts.adding_drill: 0.25,
    transcripts.reasoner: 0.40,
    transcripts.challenger: 0.30,
    transcripts.chooser: 0.05,
}
ROLES: dict[Draw, float] = {
    transcripts.adding_drill: 0.05,
    transcripts.reasoner: 0.45,
    transcripts.challenger: 0.43,
    transcripts.chooser: 0.07,
}
LETTERS: dict[Draw, float] = {**ROLES, transcripts.letter_drill: 0.6}
PHASES = (
    Phase("sums and roles", 1.5e6, 2.5e-3, 2.5e-3, DRILL, 0.01),
    Phase("roles", 2.6e6, 2.5e-3, 2e-5, ROLES),
    Phase("letters", 0.9e6, 1.5e-3, 2e-5, LETTERS),
)


def make(unfinished: Path, seed: int, resume: int, base: Path, phases: tuple[Phase, ...] = PHASES) -> Iterator[Bar]:
    model = load_checkpoint(unfinished if resume else base)
    if not resume:
        model = with_more_words(model, transcripts.LEDGER_WORDS)
    train(model, phases, seed, unfinished, resume)
    yield from ledger_bars(load_checkpoint(unfinished))


def main() -> None:
    """The checkpoint appears in the folder only when its bars hold; until then it is in FOLDER.unfinished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--base", type=Path, default=BASE, help="the model that it starts from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", type=int, default=0, metavar="PHASE", help="go on from FOLDER.unfinished")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    unfinished = args.out.with_name(f"{args.out.name}.unfinished")
    if not passed(make(unfinished, args.seed, args.resume, args.base)):
        sys.exit(f"{unfinished} misses a quality bar and was left there; try another --seed")
    shutil.rmtree(args.out, ignore_errors=True)
    unfinished.rename(args.out)


if __name__ == "__main__":
    main()
