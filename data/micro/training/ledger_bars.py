"""The quality bars of the ledgers' micro model, measured in worlds that training never drew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from data.micro.training.bars import Bar, share
from data.micro.training.ledger_transcripts import FORMATS, user
from data.micro.training.model import MicroModel
from data.micro.training.sampler import sample
from flows.worlds.encyclopaedia import NAMES
from flows.worlds.ledgers import (
    ANSWER_TYPES,
    FEWEST_ASKED,
    LETTERS,
    NUM_ITEMS,
    NUM_ITEMS_DEEP,
    NUM_ITEMS_LONG,
    Ledger,
    draw_ledger,
    held_out_tasks,
    parse_question,
    true_answer,
)
from tasks.readers.boxed import last_box
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object

MULTIPLE_CHOICE = FORMATS[0]
BENCH_WORLD = 7
NUM_TASKS = 480
MOST_TOKENS = 144
MOST_TOKENS_DEEP = 256
NUM_DEEP_TASKS = 930  # six rounds of five forms and 31 numbers of items


def ledgers(num: int, num_items: int = NUM_ITEMS) -> list[Ledger]:
    rng = random.Random(f"bars {BENCH_WORLD}")
    return [draw_ledger(rng, NAMES, num_items=num_items) for _ in range(num)]


def choosing_bar(model: MicroModel, num_items: int = NUM_ITEMS, num: int = 300) -> Bar:
    """The share of replies at temperature 1 whose format suits the ledger."""
    shown = ledgers(num, num_items)
    replies = sample(
        model,
        [user("choose", formats=FORMATS, document=x.text)[0] for x in shown],
        1.0,
        BENCH_WORLD,
    )
    fits = []
    for ledger, reply in zip(shown, replies, strict=True):
        wanted = {ANSWER_TYPES[ledger.kind]}
        if ledger.kind != "unknown":
            wanted.add(MULTIPLE_CHOICE)
        fits.append(read_choice(reply) in wanted)
    return Bar("formats that suit", share(fits), num, 0.95)


def asking_bars(
    model: MicroModel,
    num_items: int = NUM_ITEMS,
    num: int = 500,
    max_tokens: int = MOST_TOKENS,
) -> Iterator[Bar]:
    """Questions at temperature 1: the shares that are readable, that follow the grammar, and that
    have the true answer, and their lengths."""
    rng = random.Random(BENCH_WORLD)
    shown = ledgers(num, num_items)
    prompts = []
    types = []
    for ledger in shown:
        letters = ledger.kind != "unknown" and rng.random() < 0.4
        if letters:
            types.append(MULTIPLE_CHOICE)
            prompt, _ = user(MULTIPLE_CHOICE, document=ledger.text)
        else:
            types.append(ANSWER_TYPES[ledger.kind])
            prompt, _ = user("free_form", document=ledger.text, answer_type=types[-1])
        prompts.append(prompt)
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=max_tokens)
    asked = [read_question(reply, kind) for reply, kind in zip(replies, types, strict=True)]
    valid = [row for row in asked if row]
    yield Bar("valid questions", len(valid) / num, num, 0.80, 0.97)
    true = [true_answer(row["text"], row["options"]) == row["reference"] for row in valid]
    yield Bar("true references", share(true), len(valid), 0.93)
    for kind in sorted(set(types)):
        of_kind = [t for t, row in zip(true, valid, strict=True) if row["answer_type"] == kind]
        yield Bar(f"true references, {kind}", share(of_kind), len(of_kind), gates=False)
    counts = [len(ledger.items) for row in valid if (ledger := parse_question(row["text"]))]
    for count in range(FEWEST_ASKED, num_items + 1):
        yield Bar(
            f"questions of {count} items",
            counts.count(count) / len(counts),
            len(counts),
            gates=False,
        )


def read_choice(reply: str) -> str | None:
    """The chosen answer type, or multiple choice.

    >>> read_choice('{"suitable_for_mcq": true, "suitable_for_free_form": false}')
    'multiple_choice'
    """
    said = _said(reply)
    letters = said.get("suitable_for_mcq")
    free = said.get("suitable_for_free_form")
    if letters is True and free is False:
        return MULTIPLE_CHOICE
    if letters is False and free is True:
        return _text(said.get("best_answer_type"))
    return None


def read_question(reply: str, task_type: str) -> dict[str, Any] | None:
    """The text, options and reference of a question of type `task_type`; None if it is malformed or
    refers to a text.

    >>> reply = '{"question": "how many ?", "answer": "12", "answer_type": " Integer "}'
    >>> read_question(reply, "Integer")["reference"]
    '12'
    """
    said = _said(reply)
    question = _text(said.get("question"))
    answer = _text(said.get("answer"))
    options = said.get("options")
    if not question or not answer or "in the document" in question:
        return None
    if task_type == MULTIPLE_CHOICE:
        if isinstance(options, dict):
            texts = [_text(options.get(letter)) for letter in LETTERS]
        else:
            texts = []
        letter = letter_of(answer)
        whole = letter is not None and len(set(texts)) == len(LETTERS)
        if whole:
            return {
                "text": question,
                "options": texts,
                "answer_type": task_type,
                "reference": letter,
            }
        return None
    of_its_type = _text(said.get("answer_type")) == task_type
    read = {"text": question, "options": None, "answer_type": task_type, "reference": answer}
    if of_its_type:
        return read
    return None


def _said(reply: str) -> dict[str, Any]:
    """The last JSON object in a reply; empty if there is none."""
    try:
        return last_object(words(reply))
    except Malformed:
        return {}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    return ""


def words(reply: str) -> str:
    return reply.removesuffix("<|im_end|>")


def reasoning_bars(
    model: MicroModel,
    num_items: int = NUM_ITEMS,
    low: float = 0.30,
    high: float = 0.65,
    num: int = NUM_TASKS,
    max_tokens: int = MOST_TOKENS,
) -> Iterator[Bar]:
    """The share of true answers to held-out questions at temperature 1, deliberately mediocre."""
    tasks = held_out_tasks(BENCH_WORLD, num, num_items)
    right = []
    prompts = [
        user("reasoner", task=task.question, options=options(task.options))[0] for task in tasks
    ]
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=max_tokens)
    for task, reply in zip(tasks, replies, strict=True):
        try:
            right.append(last_box(words(reply)) == task.answer)
        except Malformed:
            right.append(False)
    yield Bar("Reasoner: true answers", share(right), num, low, high)
    for name, key in (("items", lambda t: t.count), ("", lambda t: t.answer_type)):
        for value in sorted({key(task) for task in tasks}):
            of_value = [r for r, task in zip(right, tasks, strict=True) if key(task) == value]
            yield Bar(
                f"Reasoner: {value} {name}".rstrip(), share(of_value), len(of_value), gates=False
            )


def options(texts: tuple[str, ...] | list[str]) -> list[dict[str, str]]:
    return [{"letter": letter, "text": text} for letter, text in zip(LETTERS, texts, strict=False)]


def ledger_bars(model: MicroModel) -> Iterator[Bar]:
    yield choosing_bar(model)
    yield from asking_bars(model)
    yield from reasoning_bars(model)


def long_ledger_bars(model: MicroModel) -> Iterator[Bar]:
    yield choosing_bar(model, NUM_ITEMS_LONG)
    yield from asking_bars(model, NUM_ITEMS_LONG)
    yield from reasoning_bars(model, NUM_ITEMS_LONG, low=0.15, high=0.35)


def deep_ledger_bars(model: MicroModel) -> Iterator[Bar]:
    yield choosing_bar(model, NUM_ITEMS_DEEP)
    yield from asking_bars(model, NUM_ITEMS_DEEP, max_tokens=MOST_TOKENS_DEEP)
    yield from reasoning_bars(
        model,
        NUM_ITEMS_DEEP,
        low=0.30,
        high=0.60,
        num=NUM_DEEP_TASKS,
        max_tokens=MOST_TOKENS_DEEP,
    )
