"""Training text, in Golden Goose's micro prompts, for a micro model that masks entries of a ledger
and fills masks.

As the author, it copies some entries and writes three versions with wrong results; long masks are
rare. As the solver, it goes through the masked entries, and often chooses before it has finished.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from data.micro.training.ledger_transcripts import LONG_LEDGER_WORDS, so_far
from data.micro.training.tokenizer import EOS, START
from data.micro.training.transcripts import Segment, Transcript, forked
from flows.runtime.store_root import SOURCE
from flows.worlds.encyclopaedia import World
from flows.worlds.ledgers import LETTERS
from flows.worlds.masked_ledgers import (
    FIRST_MASKED,
    LONGEST_MASK,
    MASK,
    Masked,
    draw_masked,
    entries_of,
    parse_entries,
)
from tasks.prompt import Template

PROMPTS = SOURCE / "flows" / "goose" / "prompts" / "micro"
_WORDS = "mask fill Text: End text. <step> </step> <distractor> </distractor>"
MASKING_WORDS = (*LONG_LEDGER_WORDS, MASK, *_WORDS.split())
NUM_DISTRACTORS = len(LETTERS) - 1
REPLIES = 3
BROKEN = 0.03  # share of replies that end before the last distractor, or within the box


@dataclass(frozen=True)
class Habits:
    """How long the model's masks are, and how far it goes when it fills one.

    `asked` holds the weights of the lengths of masks, from 1 on. When filling a mask, the model
    continues after entry n with probability `goes_on[n - 1]`; otherwise it chooses an option that
    fits so far.
    """

    asked: Sequence[float]
    goes_on: Sequence[float]


LENGTHS = range(1, LONGEST_MASK + 1)
HASTY = Habits(
    asked=[0.75**length for length in LENGTHS],
    goes_on=[max(0.15, 0.8 - 0.1 * done) for done in LENGTHS],
)
SOUND = replace(HASTY, asked=[1.0 for _ in LENGTHS], goes_on=[1.0 for _ in LENGTHS])


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {_template(name).render(**values)} {EOS} {START} assistant", 0.0


def author(world: World, rng: random.Random, habits: Habits) -> Transcript:
    """Write masks of one ledger: the masked entries, then the same entries with wrong results."""
    ledger = draw_masked(rng, world.names, 1).ledger
    replies = []
    for _ in range(REPLIES):
        length = rng.choices(LENGTHS, habits.asked)[0]
        start = rng.randint(FIRST_MASKED, len(ledger.items) - length)
        replies.append(_written(rng, Masked(ledger, start, start + length)))
    return forked([user("author", document=ledger.text)], replies)


def _written(rng: random.Random, masked: Masked) -> str:
    wrong = [
        f"<distractor> {text} </distractor>" for text in masked.distractors(rng, NUM_DISTRACTORS)
    ]
    if rng.random() < BROKEN:
        wrong.pop()
    return " ".join([f"<step> {masked.step} </step>", *wrong])


def solver(world: World, rng: random.Random, habits: Habits) -> Transcript:
    """Fill a mask by going through its entries."""
    masked = draw_masked(rng, world.names, rng.choice(LENGTHS))
    options = [masked.step, *masked.distractors(rng, NUM_DISTRACTORS)]
    rng.shuffle(options)
    replies = [filled(rng, masked, options, habits) for _ in range(REPLIES)]
    return forked([user("solver", task=masked.text, options=lettered(options))], replies)


def letter_drill(world: World, rng: random.Random) -> Transcript:
    """Results that occur in only one option, each followed by the letter of that option."""
    masked = draw_masked(rng, world.names, rng.choice(LENGTHS))
    options = [masked.step, *masked.distractors(rng, NUM_DISTRACTORS)]
    rng.shuffle(options)
    segments = [user("solver", task=masked.text, options=lettered(options))]
    stated = [[entry.result for entry in parse_entries(option) or ()] for option in options]
    for own, letter in rng.sample(list(zip(stated, LETTERS, strict=True)), len(options)):
        others = {result for results in stated if results is not own for result in results}
        only_here = [result for result in own if result not in others]
        if only_here:
            segments += [(f"so {rng.choice(only_here)} .", 0.0), (f"{letter} .", 1.0)]
    return Transcript(segments)


def lettered(options: Sequence[str]) -> list[dict[str, str]]:
    return [{"letter": letter, "text": text} for letter, text in zip(LETTERS, options, strict=True)]


def filled(rng: random.Random, masked: Masked, options: Sequence[str], habits: Habits) -> str:
    """The steps, then the letter of an option that agrees with them."""
    length = masked.end - masked.start
    reached = next((n for n in range(1, length) if rng.random() > habits.goes_on[n - 1]), length)
    steps = []
    for n in range(masked.start, masked.start + reached):
        quantity = masked.ledger.quantities[n]
        item = masked.ledger.items[n]
        steps.append(f"{quantity} {item} {so_far(masked.ledger, n + 1)} .")
    result = entries_of(masked.ledger)[masked.start + reached - 1].result
    letter = rng.choice(fitting(masked, options, reached))
    reply = f"{' '.join(steps)} so {result} . {letter} . \\boxed{{ {letter} }}"
    if rng.random() < BROKEN:
        return reply.removesuffix(" }")
    return reply


def fitting(masked: Masked, options: Sequence[str], reached: int) -> list[str]:
    """The letters of the options whose first `reached` entries are right."""
    truth = entries_of(masked.ledger)[masked.start : masked.start + reached]
    return [
        letter
        for letter, option in zip(LETTERS, options, strict=True)
        if (parse_entries(option) or [])[:reached] == truth
    ]
