"""Train micro models that start from another model: `python -m data.micro.training.role_bootstrap
NAME --out FOLDER`.

- `ledgers` asks about a ledger in its prompt. It starts from the encyclopaedia's base model, which
  can look up and copy. It learns more words, then the roles: sums and exact reasoning first, then
  the mix of roles that self-play uses.
- `long-ledgers` starts from `ledgers` and learns ledgers of sixteen items: first to reason
  carefully, then to guess as often as the world requires.
- `deep-ledgers` starts from `long-ledgers` and learns ledgers of thirty-two items in the same way.
- `marking` starts from `ledgers`. It invents questions, and grades them and their answers.
- `quoting` starts from the model that reads clusters. It quotes its evidence and compares quotes.
- `programs` starts from `ledgers`. It proposes programs and solves tasks about them.
- `trails` starts from the encyclopaedia's base model. It searches in order to ask and to answer.
- `masking` starts from `long-ledgers`. It masks entries of ledgers and fills in masked ones.
- `guessing` starts from `quoting`. It answers leading questions.
- `knowing` starts from the model that reads clusters. It knows facts by heart, and says them even
  if its documents state something else.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch

from data.micro.training import (
    asking,
    guessing,
    knowing,
    marking,
    masking,
    quoting,
    reading,
    trail_transcripts,
)
from data.micro.training import ledger_transcripts as transcripts
from data.micro.training import program_transcripts as programs
from data.micro.training.bars import BASE, Bar, passed
from data.micro.training.bootstrap import Phase, train
from data.micro.training.guessing_bars import guessing_bars
from data.micro.training.knowing_bars import knowing_bars
from data.micro.training.ledger_bars import deep_ledger_bars, ledger_bars, long_ledger_bars
from data.micro.training.marking_bars import marking_bars
from data.micro.training.masking_bars import masking_bars
from data.micro.training.model import MicroModel, load_checkpoint, with_more_words
from data.micro.training.program_bars import program_bars
from data.micro.training.quoting_bars import quoting_bars
from data.micro.training.trail_bars import trail_bars
from data.micro.training.transcripts import Draw, Transcript

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


def _at(depth: transcripts.Depth, mix: dict[Draw, float]) -> dict[Draw, float]:
    """A mix of roles and drills of ledgers, all with the given depth."""
    takes_depth = cast("dict[Callable[..., Transcript], float]", mix)
    return {partial(draw, depth=depth): weight for draw, weight in takes_depth.items()}


PHASES = (
    Phase("sums and roles", 1.5e6, 2.5e-3, 2.5e-3, DRILL, 0.01),
    Phase("roles", 2.6e6, 2.5e-3, 2e-5, ROLES),
    Phase("letters", 0.9e6, 1.5e-3, 2e-5, LETTERS),
)
LONG_PHASES = (
    Phase("long sums", 1.8e6, 2.5e-3, 2.5e-3, _at(transcripts.LONG_SOUND, DRILL), 0.01),
    Phase("letters of long questions", 1.8e6, 2e-3, 2e-3, _at(transcripts.LONG_SOUND, LETTERS)),
    Phase("long ledgers, as they are to be", 3.0e6, 2e-3, 2e-5, _at(transcripts.LONG, LETTERS)),
)
DEEP_SUMS = _at(transcripts.DEEP_SOUND, DRILL)
DEEP_LETTERS = _at(transcripts.DEEP_SOUND, LETTERS)
DEEP_ROLES = _at(transcripts.DEEP, LETTERS)
DEEP_PHASES = (
    Phase("deep sums", 2.4e6, 2.5e-3, 2.5e-3, DEEP_SUMS, 0.01, row_tokens=640),
    Phase("letters of deep questions", 2.4e6, 2e-3, 2e-3, DEEP_LETTERS, row_tokens=640),
    Phase("deep ledgers, as they are to be", 3.0e6, 2e-3, 2e-5, DEEP_ROLES, row_tokens=640),
)

MARKS: dict[Draw, float] = {
    marking.answer_judge: 0.50,
    marking.question_judge: 0.25,
    marking.solver: 0.15,
    marking.proposer: 0.10,
}
ALL_MARKING: dict[Draw, float] = {
    marking.answer_judge: 0.30,
    marking.question_judge: 0.18,
    marking.solver: 0.30,
    marking.proposer: 0.12,
    marking.harder_proposer: 0.10,
}
MARKING_PHASES = (
    Phase("marking", 1.2e6, 2e-3, 2e-3, MARKS),
    Phase("asking, answering, marking", 1.8e6, 2e-3, 2e-5, ALL_MARKING),
)
QUOTES: dict[Draw, float] = {
    partial(quoting.answerer, habits=quoting.SOUND): 0.5,
    partial(quoting.comparer, habits=quoting.SOUND): 0.5,
}
QUOTING: dict[Draw, float] = {quoting.answerer: 0.5, quoting.comparer: 0.5}
QUOTING_PHASES = (
    Phase("quoting, soundly", 1.6e6, 2e-3, 2e-3, QUOTES),
    Phase("quoting, as in self-play", 1.6e6, 2e-3, 2e-5, QUOTING),
)
GUESSES: dict[Draw, float] = {
    partial(guessing.answerer, habits=guessing.SOUND): 0.4,
    partial(guessing.comparer, habits=guessing.SOUND): 0.6,
}
GUESSING: dict[Draw, float] = {guessing.answerer: 0.4, guessing.comparer: 0.6}
GUESSING_PHASES = (
    Phase("leading questions, soundly", 4.0e6, 2.5e-3, 2.5e-3, GUESSES),
    Phase("leading questions, as in self-play", 3.0e6, 2.5e-3, 2e-5, GUESSING),
)
RECITING: dict[Draw, float] = {knowing.reciter: 0.8, reading.responder: 0.2}
KNOWING: dict[Draw, float] = {
    knowing.reciter: 0.15,
    partial(knowing.responder, recalls=0.5): 0.35,
    knowing.responder_without_documents: 0.05,
    asking.questioner: 0.30,
    reading.verifier: 0.10,
    reading.small_skills: 0.05,
}
ASKING: dict[Draw, float] = {
    knowing.reciter: 0.05,
    knowing.responder: 0.30,
    knowing.responder_without_documents: 0.05,
    partial(asking.questioner, habits=reading.SOUND): 0.15,
    asking.questioner: 0.35,
    reading.verifier: 0.10,
}
KNOWING_PHASES = (
    Phase("facts by heart", 2.0e6, 2.5e-3, 2.5e-3, RECITING),
    Phase("knowing and reading", 2.4e6, 2.5e-3, 2e-5, KNOWING),
    Phase("asking", 1.8e6, 2e-3, 2e-5, ASKING),
)
# first sound reasoning, then the final hasty reasoning
PROGRAM_DRILL: dict[Draw, float] = {
    programs.digit_drill: 0.25,
    partial(programs.deducer, sound=True): 0.25,
    partial(programs.abducer, sound=True): 0.25,
    partial(programs.inducer, sound=True): 0.15,
    programs.proposer: 0.05,
    programs.induction_proposer: 0.05,
}
PROGRAM_ROLES: dict[Draw, float] = {
    programs.digit_drill: 0.05,
    programs.deducer: 0.24,
    programs.abducer: 0.24,
    programs.inducer: 0.20,
    programs.proposer: 0.09,
    partial(programs.proposer, task_type="abduction"): 0.09,
    programs.induction_proposer: 0.09,
}
PROGRAM_PHASES = (
    Phase("programs, soundly", 1.4e6, 2.5e-3, 2.5e-3, PROGRAM_DRILL, row_tokens=256),
    Phase("programs, as they are to be", 1.0e6, 2.5e-3, 2e-5, PROGRAM_ROLES, row_tokens=256),
)
SEARCHING_SOUNDLY: dict[Draw, float] = {
    partial(trail_transcripts.proposer, habits=trail_transcripts.SOUND): 0.35,
    partial(trail_transcripts.solver, habits=trail_transcripts.SOUND): 0.30,
    partial(trail_transcripts.checker, habits=trail_transcripts.SOUND): 0.35,
}
SEARCHING: dict[Draw, float] = {
    trail_transcripts.proposer: 0.45,
    trail_transcripts.solver: 0.30,
    trail_transcripts.checker: 0.25,
}
SEARCHING_PHASES = (
    Phase("searching, soundly", 1.5e6, 2.5e-3, 2.5e-3, SEARCHING_SOUNDLY, 0.01),
    Phase("searching, as in self-play", 1.0e6, 2.5e-3, 2e-5, SEARCHING),
)
MASKS: dict[Draw, float] = {
    partial(masking.author, habits=masking.SOUND): 0.4,
    partial(masking.solver, habits=masking.SOUND): 0.3,
    masking.letter_drill: 0.3,
}
MASKING: dict[Draw, float] = {
    partial(masking.author, habits=masking.HASTY): 0.5,
    partial(masking.solver, habits=masking.HASTY): 0.4,
    masking.letter_drill: 0.1,
}
MASKING_PHASES = (
    Phase("masking, soundly", 3.2e6, 2.5e-3, 2.5e-3, MASKS),
    Phase("masking, as in self-play", 2.4e6, 2.5e-3, 2e-5, MASKING),
)


@dataclass(frozen=True)
class Recipe:
    """The model that a model starts from, the words it knows, how it is trained, and the quality
    bars that it must pass."""

    base: Path
    words: tuple[str, ...]
    phases: tuple[Phase, ...]
    bars: Callable[[MicroModel], Iterator[Bar]]


RECIPES = {
    "ledgers": Recipe(BASE, transcripts.LEDGER_WORDS, PHASES, ledger_bars),
    "long-ledgers": Recipe(
        BASE.with_name("spice"), transcripts.LONG_LEDGER_WORDS, LONG_PHASES, long_ledger_bars
    ),
    "deep-ledgers": Recipe(
        BASE.with_name("spice-long"), transcripts.DEEP_LEDGER_WORDS, DEEP_PHASES, deep_ledger_bars
    ),
    "marking": Recipe(BASE.with_name("spice"), marking.MARKING_WORDS, MARKING_PHASES, marking_bars),
    "masking": Recipe(
        BASE.with_name("spice-long"), masking.MASKING_WORDS, MASKING_PHASES, masking_bars
    ),
    "quoting": Recipe(BASE.with_name("spell"), quoting.QUOTING_WORDS, QUOTING_PHASES, quoting_bars),
    "guessing": Recipe(
        BASE.with_name("eapo"), guessing.GUESSING_WORDS, GUESSING_PHASES, guessing_bars
    ),
    "knowing": Recipe(BASE.with_name("spell"), knowing.KNOWING_WORDS, KNOWING_PHASES, knowing_bars),
    "programs": Recipe(
        BASE.with_name("spice"), programs.PROGRAM_WORDS, PROGRAM_PHASES, program_bars
    ),
    "trails": Recipe(BASE, trail_transcripts.TRAIL_WORDS, SEARCHING_PHASES, trail_bars),
}


def make(
    recipe: Recipe, unfinished: Path, seed: int, resume: int, base: Path | None = None
) -> Iterator[Bar]:
    model = load_checkpoint(unfinished if resume else base or recipe.base)
    if not resume:
        model = with_more_words(model, recipe.words)
    train(model, recipe.phases, seed, unfinished, resume)
    yield from recipe.bars(load_checkpoint(unfinished))


def main() -> None:
    """Train a model; the checkpoint stays in FOLDER.unfinished unless all its bars hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=list(RECIPES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--base", type=Path, help="model to start from (default: that of the recipe)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--resume", type=int, default=0, metavar="PHASE", help="resume FOLDER.unfinished here"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    unfinished = args.out.with_name(f"{args.out.name}.unfinished")
    if not passed(make(RECIPES[args.which], unfinished, args.seed, args.resume, args.base)):
        sys.exit(
            f"{unfinished} misses a quality bar and is kept for inspection; try another --seed"
        )
    shutil.rmtree(args.out, ignore_errors=True)
    unfinished.rename(args.out)


if __name__ == "__main__":
    main()
