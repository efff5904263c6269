"""Training text, in MAE's micro prompts, for a micro model that asks, answers and marks.

The model never sees a ledger. It makes up sound or flawed questions about ledgers, answers them as
hastily as the ledgers' model does, and marks questions and answers from 1 to 10. It can mark from
the start: it goes through a question item by item and is mostly right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from data.micro.training.ledger_transcripts import (
    LEDGER_WORDS,
    SHORT,
    reasoning,
    working,
)
from data.micro.training.tokenizer import EOS, START
from data.micro.training.transcripts import Segment, Transcript, forked, think
from flows.runtime.store_root import SOURCE
from flows.worlds.encyclopaedia import World
from flows.worlds.ledgers import ITEMS, LARGEST, LETTERS, NUM_ITEMS, Ledger, draw_ledger
from tasks.prompt import Template

PROMPTS = SOURCE / "flows" / "mae" / "prompts" / "micro"
MARKING_WORDS = (
    *LEDGER_WORDS,
    "question",
    "ask",
    "anything",
    "harder",
    "than",
    "mark",
    "<question>",
    "</question>",
    "twice",
    "same",
)

Flaw = Literal["unknown", "near"]
FLAWED = 0.2  # share of flawed questions among those that it makes up
SLOPPY = 0.06  # share of each role's replies with a missing tag, or given twice
REPLIES = 4
CLEAR = (8, 9, 10)
UNCLEAR = (4, 5, 6)
WRONG = (1, 2, 3)
# share of questions made from a reference question that are one item longer, up to the maximum
HARDER = 0.65


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {_template(name).render(**values)} {EOS} {START} assistant", 0.0


@dataclass(frozen=True)
class Question:
    """A question about the first items of a ledger, and its flaw, if any.

    `unknown` omits a quantity, so there is no answer; `near` states one only roughly, which makes
    the question unclear.
    """

    ledger: Ledger
    flaw: Flaw | None = None

    @property
    def text(self) -> str:
        return self.ledger.question(len(self.ledger.items))

    @property
    def marks(self) -> tuple[int, ...]:
        if self.flaw is None:
            return CLEAR
        if self.flaw == "near":
            return UNCLEAR
        return WRONG

    def review(self) -> str:
        """The items one by one, each with its flaw.

        >>> ledger = Ledger("Baba", "total", ("cr", "fo", "me"), ("7", "unknown", "near 5"))
        >>> Question(ledger, "near").review()
        '7 cr yes . unknown fo no . near 5 me near .'
        """
        faults = {"unknown": "no", "near": "near"}
        held = zip(self.ledger.quantities, self.ledger.items, strict=True)
        return " ".join(
            f"{quantity} {item} {faults.get(quantity.split()[0], 'yes')} ."
            for quantity, item in held
        )


def make_up(
    rng: random.Random, names: tuple[str, ...] | list[str], *, reference: Question | None = None
) -> Question:
    """A new question; with `reference`, one that is similar but often harder."""
    count = rng.choices(SHORT.counts, SHORT.asked)[0]
    kind = None
    if reference:
        kind = reference.ledger.kind
        count = len(reference.ledger.items)
        count = min(NUM_ITEMS, count + (rng.random() < HARDER))
    drawn = draw_ledger(rng, names, kind)
    ledger = Ledger(drawn.entity, drawn.kind, drawn.items[:count], drawn.quantities[:count])
    if rng.random() < FLAWED:
        return _flawed(rng, ledger)
    return Question(ledger)


def _flawed(rng: random.Random, ledger: Ledger) -> Question:
    flaw: Flaw = rng.choice(["unknown", "near"])
    quantities = list(ledger.quantities)
    at = rng.randrange(len(ledger.items))
    if flaw == "unknown":
        quantities[at] = "unknown"
    else:
        quantities[at] = f"near {quantities[at]}"
    return Question(Ledger(ledger.entity, ledger.kind, ledger.items, tuple(quantities)), flaw)


def tagged(rng: random.Random, name: str, text: str) -> str:
    """The text in its tags; sometimes a tag is missing, sometimes the whole appears twice."""
    whole = f"<{name}> {text} </{name}>"
    drawn = rng.random()
    if drawn < SLOPPY / 2:
        return f"<{name}> {text}"
    if drawn < SLOPPY:
        return f"{whole} {whole}"
    return whole


def proposer(world: World, rng: random.Random) -> Transcript:
    """Questions from scratch."""
    replies = [tagged(rng, "question", make_up(rng, world.names).text) for _ in range(REPLIES)]
    return forked([user("propose")], replies)


def harder_proposer(world: World, rng: random.Random) -> Transcript:
    """Questions modelled on a sound one: of the same kind, about another subject, often longer."""
    shown = make_up(rng, world.names)
    made = [make_up(rng, world.names, reference=shown) for _ in range(REPLIES)]
    replies = [tagged(rng, "question", question.text) for question in made]
    return forked([user("propose_harder", reference=shown.text)], replies)


def solver(world: World, rng: random.Random) -> Transcript:
    """Hasty answers, with and without options."""
    ledger = draw_ledger(rng, world.names)
    count = rng.choice(SHORT.counts)
    options: list[str] = []
    if ledger.kind != "unknown" and rng.random() < 0.4:
        options = ledger.choices(rng, count)
    shown = [
        {"letter": letter, "text": text} for letter, text in zip(LETTERS, options, strict=False)
    ]
    replies = list(_answers(rng, ledger, count, options))
    return forked([user("solve", task=ledger.question(count), options=shown)], replies)


def _answers(rng: random.Random, ledger: Ledger, count: int, options: list[str]) -> Iterator[str]:
    for _ in range(REPLIES):
        steps, answer = reasoning(rng, ledger, count, options)
        yield f"{steps} {tagged(rng, 'answer', answer)}"


def question_judge(world: World, rng: random.Random) -> Transcript:
    """Look at each item of a question, then mark it; half of the questions are flawed."""
    question = make_up(rng, world.names)
    if question.flaw is None and rng.random() < 0.4:
        question = _flawed(rng, question.ledger)
    replies = [_marked(rng, question.review(), question.marks) for _ in range(REPLIES)]
    return forked([user("judge_question", task=question.text)], replies)


def answer_judge(world: World, rng: random.Random) -> Transcript:
    """Work out the answer to a question, then mark answers to it; if it has no answer, every answer
    is wrong."""
    ledger = draw_ledger(rng, world.names)
    count = rng.choice(SHORT.counts)
    shorter = Ledger(ledger.entity, ledger.kind, ledger.items[:count], ledger.quantities[:count])
    question = Question(shorter)
    if rng.random() < 0.15:
        question = _flawed(rng, shorter)
    answer = _candidate(rng, ledger, count)
    replies = [_marked(rng, *_verdict(question, answer)) for _ in range(REPLIES)]
    return forked([user("judge_answer", task=question.text, answer=answer)], replies)


def _candidate(rng: random.Random, ledger: Ledger, count: int) -> str:
    """The right answer half of the time, else the result of fewer items or a value near it."""
    right = ledger.comes_to(count)
    drawn = rng.random()
    if drawn < 0.5:
        return right
    if drawn < 0.8:
        return ledger.comes_to(rng.randint(1, count))
    if ledger.kind == "most":
        return rng.choice(ITEMS)
    known = right.split()[-1]
    by = rng.choice((-10, -3, -2, -1, 1, 2, 3, 10))
    near = max(1, int(known) + by) if known.isdecimal() else rng.randint(1, LARGEST)
    if ledger.kind == "unknown" and rng.random() < 0.8:
        return f"x + {near}"
    return str(near)


def _verdict(question: Question, answer: str) -> tuple[str, tuple[int, ...]]:
    if question.flaw:
        return question.review(), WRONG
    count = len(question.ledger.items)
    right = question.ledger.comes_to(count)
    steps = " ".join(working(question.ledger, count))
    if answer == right:
        return f"{steps} so {right} : {answer} yes .", CLEAR
    return f"{steps} so {right} : {answer} no .", WRONG


def _marked(rng: random.Random, thought: str, marks: tuple[int, ...]) -> str:
    return f"{think(thought)} {tagged(rng, 'score', str(rng.choice(marks)))}"
