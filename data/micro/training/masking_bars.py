"""The quality bars of the model that masks ledgers, measured in worlds that training never drew, at
temperature 1."""

from __future__ import annotations

import random
from collections.abc import Iterator

from data.micro.training.bars import Bar, share
from data.micro.training.ledger_bars import BENCH_WORLD, NUM_TASKS, words
from data.micro.training.masking import LENGTHS, NUM_DISTRACTORS, lettered, user
from data.micro.training.model import MicroModel
from data.micro.training.sampler import sample
from flows.goose.readers import masked_task
from flows.worlds.encyclopaedia import NAMES
from flows.worlds.masked_ledgers import draw_masked, held_out_tasks, parse_entries, true_letter
from tasks.readers.boxed import last_box
from tasks.readers.malformed import Malformed
from tasks.readers.tags import elements, last_element
from warehouse.schemas import Row

MOST_TOKENS = 240


def masking_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    yield from author_bars(model, num)
    yield from filling_bars(model)


def author_bars(model: MicroModel, num: int) -> Iterator[Bar]:
    """The share of replies that are tasks, the share of tasks whose only right option is the
    reference, and the lengths of masks."""
    rng = random.Random(f"masks {BENCH_WORLD}")
    shown = [draw_masked(rng, NAMES, 1).ledger.text for _ in range(num)]
    prompts = [user("author", document=text)[0] for text in shown]
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=MOST_TOKENS)
    read = [read_task(reply, text) for reply, text in zip(replies, shown, strict=True)]
    tasks = [task for task in read if task]
    yield Bar("Author: replies that are tasks", len(tasks) / num, num, 0.80, 0.98)
    sound = [true_letter(task["text"], task["options"]) == task["reference"] for task in tasks]
    yield Bar("Author: true references", share(sound), len(tasks), 0.85)
    lengths = [len(parse_entries(task["options"][0]) or ()) for task in tasks]
    for length in LENGTHS:
        yield Bar(
            f"masks of {length} entries",
            lengths.count(length) / len(tasks),
            len(tasks),
            gates=False,
        )


def read_task(reply: str, text: str) -> Row | None:
    """The task that a reply makes from a text; None if it makes none."""
    said = words(reply)
    try:
        return masked_task(
            text,
            last_element(said, "step"),
            [element.text for element in elements(said, "distractor")],
            num_distractors=NUM_DISTRACTORS,
            min_words=3,
            seed=text,
        )
    except Malformed:
        return None


def filling_bars(model: MicroModel) -> Iterator[Bar]:
    """The share of held-out masks that are filled correctly, deliberately mediocre."""
    tasks = held_out_tasks(BENCH_WORLD, NUM_TASKS)
    prompts = [user("solver", task=task.text, options=lettered(task.options))[0] for task in tasks]
    replies = sample(model, prompts, 1.0, BENCH_WORLD, max_tokens=MOST_TOKENS)
    right = []
    for task, reply in zip(tasks, replies, strict=True):
        try:
            right.append(last_box(words(reply)) == task.answer)
        except Malformed:
            right.append(False)
    yield Bar("Solver: true letters", share(right), len(tasks), 0.35, 0.65)
    for length in LENGTHS:
        of_length = [r for r, task in zip(right, tasks, strict=True) if task.length == length]
        yield Bar(
            f"Solver: masks of {length} entries", share(of_length), len(of_length), gates=False
        )
