"""The quality bars of the model that marks, measured in worlds that training never drew, at
temperature 1."""

from __future__ import annotations

import random
from collections.abc import Iterator

from data.micro.training.bars import Bar, share
from data.micro.training.ledger_bars import BENCH_WORLD, NUM_TASKS, options, words
from data.micro.training.marking import CLEAR, UNCLEAR, WRONG, Question, make_up, user
from data.micro.training.model import MicroModel
from data.micro.training.sampler import sample
from flows.worlds.encyclopaedia import NAMES
from flows.worlds.ledgers import (
    FEWEST_ASKED,
    NUM_ITEMS,
    held_out_tasks,
    parse_question,
    true_answer,
)
from tasks.readers.malformed import Malformed
from tasks.readers.tags import last_element


def marking_bars(model: MicroModel, num: int = 500) -> Iterator[Bar]:
    yield from asking_bars(model, num)
    yield question_bar(model, num)
    yield from answer_bars(model)


def text_in(reply: str, tag: str) -> str | None:
    try:
        return last_element(words(reply), tag)
    except Malformed:
        return None


def asking_bars(model: MicroModel, num: int) -> Iterator[Bar]:
    """The share of questions that follow the grammar and have an answer, their lengths, and whether
    questions made from other questions get longer."""
    rng = random.Random(f"asking {BENCH_WORLD}")
    shown = [make_up(rng, NAMES) for _ in range(num)]
    asked = sample(model, [user("propose")[0]] * num, 1.0, BENCH_WORLD)
    found = [parse_question(text_in(reply, "question") or "") for reply in asked]
    yield Bar(
        "Proposer: sound questions",
        share([ledger is not None for ledger in found]),
        num,
        0.55,
        0.85,
    )
    counts = [len(ledger.items) for ledger in found if ledger]
    for count in range(FEWEST_ASKED, NUM_ITEMS + 1):
        yield Bar(
            f"questions of {count} items",
            counts.count(count) / len(counts),
            len(counts),
            gates=False,
        )
    asked = sample(
        model, [user("propose_harder", reference=one.text)[0] for one in shown], 1.0, BENCH_WORLD
    )
    longer = [
        len(ledger.items) > len(one.ledger.items)
        for one, reply in zip(shown, asked, strict=True)
        if (ledger := parse_question(text_in(reply, "question") or ""))
    ]
    yield Bar("questions longer than their reference", share(longer), len(longer), 0.40)


def question_bar(model: MicroModel, num: int) -> Bar:
    """The share of marks in the band that the question deserves."""
    rng = random.Random(f"marking {BENCH_WORLD}")
    asked: list[Question] = [make_up(rng, NAMES) for _ in range(num)]
    replies = sample(
        model,
        [user("judge_question", task=question.text)[0] for question in asked],
        1.0,
        BENCH_WORLD,
    )
    given = [band(text_in(reply, "score")) for reply in replies]
    read = [(mark, question.marks) for mark, question in zip(given, asked, strict=True) if mark]
    return Bar(
        "Judge: questions marked as they deserve", share([a == b for a, b in read]), len(read), 0.93
    )


def answer_bars(model: MicroModel, num: int = NUM_TASKS) -> Iterator[Bar]:
    """The model's own answers to held-out questions: the share that is true (deliberately
    mediocre), and the share that gets a mark in the band that it deserves."""
    tasks = held_out_tasks(BENCH_WORLD, num)
    prompts = [
        user("solve", task=task.question, options=options(task.options))[0] for task in tasks
    ]
    given = [text_in(reply, "answer") for reply in sample(model, prompts, 1.0, BENCH_WORLD)]
    right = [answer == task.answer for answer, task in zip(given, tasks, strict=True)]
    yield Bar("Solver: true answers", share(right), num, 0.30, 0.65)
    free = [
        (task.question, answer)
        for task, answer in zip(tasks, given, strict=True)
        if answer and not task.options
    ]
    asked = [user("judge_answer", task=question, answer=answer)[0] for question, answer in free]
    marks = [band(text_in(reply, "score")) for reply in sample(model, asked, 1.0, BENCH_WORLD)]
    deserved = [CLEAR if true_answer(question) == answer else WRONG for question, answer in free]
    read = [(mark, truth) for mark, truth in zip(marks, deserved, strict=True) if mark]
    yield Bar("Judge: readable marks", len(read) / len(free), len(free), 0.90, 0.995)
    yield Bar(
        "Judge: answers marked as they deserve", share([a == b for a, b in read]), len(read), 0.95
    )
    passed = [mark == CLEAR for mark, truth in read if truth == WRONG]
    yield Bar("Judge: wrong answers marked as right", share(passed), len(passed), high=0.05)


def band(mark: str | None) -> tuple[int, ...] | None:
    """The band of a mark; None if `mark` is not a valid mark.

    >>> band("9"), band("5"), band("none"), band(None)
    ((8, 9, 10), (4, 5, 6), None, None)
    """
    return next(
        (marks for marks in (CLEAR, UNCLEAR, WRONG) if mark in [str(m) for m in marks]), None
    )
