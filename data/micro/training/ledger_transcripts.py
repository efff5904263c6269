"""Training text of the micro model about ledgers, role by role, in the formats of SPICE's micro
prompts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from data.micro.training.tokenizer import EOS, START, WORDS
from data.micro.training.transcripts import Segment, Transcript, forked, think
from flows.runtime.store_root import SOURCE
from flows.worlds.encyclopaedia import World
from flows.worlds.ledgers import (
    ANSWER_TYPES,
    FEWEST_ASKED,
    LARGEST,
    LETTERS,
    NUM_ITEMS,
    NUM_ITEMS_DEEP,
    NUM_ITEMS_LONG,
    ORDINALS,
    UNKNOWN_QUANTITY,
    Kind,
    Ledger,
    draw_ledger,
)
from tasks.prompt import Template

PROMPTS = SOURCE / "flows" / "spice" / "prompts" / "micro"
FORMATS = ("multiple_choice", "free_form")


@dataclass(frozen=True)
class Depth:
    """How long ledgers are, and how far a model goes through them.

    `asked` holds the weights of the numbers of items that it asks about, from FEWEST_ASKED on. If
    it `counts_up`, it decides at every item whether to ask about one more; otherwise it decides
    once. When answering, it continues after item n with probability `goes_on[n - 1]`; otherwise it
    answers with its result so far. Each prompt has `num_replies` replies.
    """

    num_items: int
    asked: Sequence[float]
    goes_on: Sequence[float]
    num_replies: int
    counts_up: bool = False

    @property
    def counts(self) -> range:
        return range(FEWEST_ASKED, self.num_items + 1)


SHORT = Depth(
    num_items=NUM_ITEMS,
    asked=(0.42, 0.30, 0.16, 0.08, 0.04),
    goes_on=(0.72,) * 5,
    num_replies=4,
)
_COUNTS_LONG = range(FEWEST_ASKED, NUM_ITEMS_LONG + 1)
# The further the model has got, the likelier it stops. So short questions do not teach it to answer
# long ones, and greedy decoding does not help. Long questions are rare: the model must learn to ask
# them.
LONG = Depth(
    num_items=NUM_ITEMS_LONG,
    asked=[0.9**count for count in _COUNTS_LONG],
    goes_on=[max(0.15, 0.92 - 0.08 * done) for done in range(1, NUM_ITEMS_LONG)],
    num_replies=2,
    counts_up=True,
)
LONG_SOUND = replace(
    LONG, asked=[1.0 for _ in _COUNTS_LONG], goes_on=[1.0 for _ in range(1, NUM_ITEMS_LONG)]
)
# Wherever the model is, it is as likely to stop, or to ask about one more item. So longer questions
# are harder but never hopeless, and what one position teaches a role helps it at the next.
_COUNTS_DEEP = range(FEWEST_ASKED, NUM_ITEMS_DEEP + 1)
DEEP = Depth(
    num_items=NUM_ITEMS_DEEP,
    asked=[0.96**count for count in _COUNTS_DEEP],
    goes_on=(0.95,) * (NUM_ITEMS_DEEP - 1),
    num_replies=2,
    counts_up=True,
)
DEEP_SOUND = replace(DEEP, asked=(1.0,) * len(_COUNTS_DEEP), goes_on=(1.0,) * (NUM_ITEMS_DEEP - 1))
# shares of questions that refer to the document, and of unclosed JSON
REFERS = 0.06
BROKEN = 0.03
UNGROUNDED = 0.10
_JSON = (
    '{ } " "A": "B": "C": "D": "question": "options": "answer": "answer_type": "suitable_for_mcq":'
    ' "suitable_for_free_form": "best_answer_type": "reason": true false null numbers names'
)
_WORDS = (
    "choose reason options how many in all which is most makes so none at x + \\boxed{ second third"
    " fourth fifth sixth"
)
LEDGER_WORDS = tuple(
    dict.fromkeys(
        [
            *WORDS,
            *_WORDS.split(),
            *_JSON.split(),
            *FORMATS,
            *LETTERS,
            *ANSWER_TYPES.values(),
            *map(str, range(10, 61)),
        ]
    )
)
LONG_LEDGER_WORDS = (
    *LEDGER_WORDS,
    *ORDINALS[NUM_ITEMS:NUM_ITEMS_LONG],
    *map(str, range(61, 161)),
)
DEEP_LEDGER_WORDS = (
    *LONG_LEDGER_WORDS,
    *ORDINALS[NUM_ITEMS_LONG:],
    *map(str, range(161, NUM_ITEMS_DEEP * LARGEST + 17)),
)


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {_template(name).render(**values)} {EOS} {START} assistant", 0.0


def as_json(**values: Any) -> str:
    """JSON in which spaces separate all words.

    >>> as_json(question="how many ?", options={"A": "1", "B": "2"}, answer=None)
    '{ "question": " how many ? " , "options": { "A": " 1 " , "B": " 2 " } , "answer": null }'
    """
    return _object(values)


def _object(values: dict[str, Any]) -> str:
    items = [f"{json.dumps(key)}: {_value(value)}" for key, value in values.items()]
    return f"{{ {' , '.join(items)} }}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _object(value)
    if isinstance(value, str):
        return f'" {value} "'
    return json.dumps(value)


def _shown(ledger: Ledger, rng: random.Random) -> str:
    if rng.random() < UNGROUNDED:
        return ""
    return ledger.text


def chooser(world: World, rng: random.Random, depth: Depth = SHORT) -> Transcript:
    """Choose the format and the answer type that suit a document."""
    ledger = draw_ledger(rng, world.names, num_items=depth.num_items)
    formats = rng.choices([FORMATS, FORMATS[:1], FORMATS[1:]], (0.8, 0.05, 0.15))[0]
    if ledger.kind == "unknown" and formats == FORMATS[:1]:
        formats = FORMATS
    shown = _shown(ledger, rng)
    return forked(
        [user("choose", formats=formats, document=shown)],
        [_choice(rng, ledger, formats) for _ in range(2)],
    )


def _choice(rng: random.Random, ledger: Ledger, formats: tuple[str, ...]) -> str:
    letters = ledger.kind != "unknown" and (
        formats == FORMATS[:1] or (len(formats) == 2 and rng.random() < 0.4)
    )
    return as_json(
        suitable_for_mcq=letters,
        suitable_for_free_form=not letters,
        best_answer_type=None if letters else ANSWER_TYPES[ledger.kind],
        reason="names" if ledger.kind == "most" else "numbers",
    )


def challenger(world: World, rng: random.Random, depth: Depth = SHORT) -> Transcript:
    """Write a question and its answer: first choose the number of items, then read their result off
    the ledger."""
    letters = rng.random() < 0.4
    weight_of: dict[Kind, float] = {"total": 0.4, "unknown": 0.2, "most": 0.4}
    if letters:
        weight_of = {"total": 0.5, "most": 0.5}
    kind = rng.choices(list(weight_of), list(weight_of.values()))[0]
    ledger = draw_ledger(rng, world.names, kind, depth.num_items)
    shown = _shown(ledger, rng)
    if letters:
        prompt = user("multiple_choice", document=shown)
    else:
        prompt = user("free_form", document=shown, answer_type=ANSWER_TYPES[ledger.kind])
    replies = []
    for _ in range(depth.num_replies):
        if not shown:
            ledger = draw_ledger(rng, world.names, kind, depth.num_items)
        count = rng.choices(depth.counts, depth.asked)[0]
        to_item = ORDINALS[count - 1]
        if depth.counts_up:
            to_item = " ".join(ORDINALS[:count])
        replies.append(_challenge(rng, ledger, count, to_item, letters, grounded=bool(shown)))
    return forked([prompt], replies)


def _challenge(
    rng: random.Random, ledger: Ledger, count: int, to_item: str, letters: bool, grounded: bool
) -> str:
    question = ledger.question(count)
    answer = ledger.comes_to(count)
    kind = rng.random()
    if kind < REFERS:
        question = f"{question.removesuffix(' ?')} in the document ?"
    if not grounded:  # no ledger to read the answer off
        thought = f"{to_item} ."
    elif ledger.kind == "most":
        thought = f"{to_item} most {answer} ."
    else:
        thought = f"{to_item} makes {answer} ."
    if letters:
        options = ledger.choices(rng, count)
        letter = LETTERS[options.index(answer)]
        thought += f" at {letter} {json.dumps(letter)}: {_value(answer)} ."
        written = as_json(
            question=question, options=dict(zip(LETTERS, options, strict=True)), answer=letter
        )
    else:
        written = as_json(question=question, answer=answer, answer_type=ANSWER_TYPES[ledger.kind])
    if kind > 1 - BROKEN:
        written = written.removesuffix(" }")
    return f"{think(thought)} {written}"


def reasoner(world: World, rng: random.Random, depth: Depth = SHORT) -> Transcript:
    """Work out the result of a question item by item."""
    ledger = draw_ledger(rng, world.names, num_items=depth.num_items)
    count = rng.choice(depth.counts)
    letters = ledger.kind != "unknown" and rng.random() < 0.4
    options: list[str] = []
    if letters:
        options = ledger.choices(rng, count)
    shown = [
        {"letter": letter, "text": text} for letter, text in zip(LETTERS, options, strict=False)
    ]
    replies = [
        "{} \\boxed{{ {} }}".format(*reasoning(rng, ledger, count, options, depth))
        for _ in range(depth.num_replies)
    ]
    return forked([user("reasoner", task=ledger.question(count), options=shown)], replies)


def reasoning(
    rng: random.Random, ledger: Ledger, count: int, options: list[str], depth: Depth = SHORT
) -> tuple[str, str]:
    """The steps and the answer to which they lead; the mediocre base often stops before the last
    item."""
    reached = next((n for n in range(1, count) if rng.random() > depth.goes_on[n - 1]), count)
    answer = ledger.comes_to(reached)
    steps = working(ledger, reached)
    if options:
        letter = LETTERS[options.index(answer)] if answer in options else rng.choice(LETTERS)
        steps = [*steps, f"so {answer} {letter} ."]
        answer = letter
    return " ".join(steps), answer


def working(ledger: Ledger, count: int) -> list[str]:
    """One step for each of the first `count` items, with the result so far.

    >>> working(Ledger("Baba", "total", ("cr", "fo"), ("7", "5")), 2)
    ['7 cr makes 7 .', '5 fo makes 12 .']
    """
    return [
        f"{ledger.quantities[n]} {ledger.items[n]} {so_far(ledger, n + 1)} ." for n in range(count)
    ]


def so_far(ledger: Ledger, count: int) -> str:
    """
    >>> so_far(Ledger("Baba", "most", ("cr", "fo"), ("7", "5")), 2)
    'most 7 cr'
    """
    found = ledger.comes_to(count)
    if ledger.kind == "most":
        return f"most {ledger.quantities[ledger.items.index(found)]} {found}"
    return f"makes {found}"


def letter_drill(world: World, rng: random.Random, depth: Depth = SHORT) -> Transcript:
    """The options of a question, each value followed by its letter."""
    ledger = draw_ledger(rng, world.names, rng.choice(("total", "most")), depth.num_items)
    count = rng.choice(depth.counts)
    options = ledger.choices(rng, count)
    shown = [
        {"letter": letter, "text": text} for letter, text in zip(LETTERS, options, strict=True)
    ]
    segments = [user("reasoner", task=ledger.question(count), options=shown)]
    for option in rng.sample(options, len(options)):
        segments += [(f"{option} {so_far(ledger, rng.randint(1, count))} . so {option}", 0.0)]
        segments += [(f"{LETTERS[options.index(option)]} .", 1.0)]
    return Transcript(segments)


def adding_drill(world: World, rng: random.Random, depth: Depth = SHORT) -> Transcript:
    """Isolated sums, worded as in the roles' replies."""
    segments: list[Segment] = [(f"{START} user reason {EOS} {START} assistant", 0.0)]
    for _ in range(8):
        before = rng.randint(1, (depth.num_items - 1) * LARGEST)
        more = rng.randint(1, LARGEST)
        item = rng.choice(world.names)
        unknown = ""
        if rng.random() < 0.3:
            unknown = f"{UNKNOWN_QUANTITY} + "
        segments += [
            (f"makes {unknown}{before} . {more} {item} makes {unknown}".rstrip(), 0.0),
            (f"{before + more} .", 1.0),
        ]
    return Transcript(segments)
