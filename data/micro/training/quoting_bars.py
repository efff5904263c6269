"""The quality bars of the model that quotes and compares quotes, in unseen clusters, at temperature
1.

Answering and comparing are deliberately mediocre, so that there is something to learn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from data.micro.training import quoting
from data.micro.training.bars import BENCH_WORLD, Bar, share
from data.micro.training.model import MicroModel
from data.micro.training.reading_bars import ask
from flows.worlds.clusters import Question, world_cluster, write_question
from flows.worlds.haystacks import context_of, evidence_of, links_found, mark
from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.tags import last_element


def quoting_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    yield from answering_bars(model, num)
    yield from comparing_bars(model, num)


def part(reply: str, tag: str) -> str:
    try:
        return last_element(reply, tag)
    except Malformed:
        return ""


def answering_bars(model: MicroModel, num: int) -> Iterator[Bar]:
    """The shares of replies with all parts, with complete evidence and with a true answer, and of
    true answers with and without complete evidence."""
    rng = random.Random(f"answering {BENCH_WORLD}")
    asked = []
    for i in range(num):
        cluster = world_cluster(BENCH_WORLD, i)
        question = quoting.draw_question(cluster, rng)
        prompt = quoting.render(
            "answer", context=context_of(cluster, rng), question=write_question(question)
        )
        asked.append((cluster, question, prompt))
    replies = ask(model, [prompt for *_, prompt in asked])
    whole = []
    right = []
    formed = []
    for (cluster, question, _), reply in zip(asked, replies, strict=True):
        whole.append(
            all(quote in part(reply, "evidence") for quote in evidence_of(cluster, question))
        )
        right.append(part(reply, "answer") == cluster.true_answer(question))
        formed.append(bool(part(reply, "reasoning")))
    yield Bar("all parts", share(formed), num, 0.85, 0.99)
    yield Bar("whole evidence", share(whole), num, 0.35, 0.65)
    yield Bar("true answers", share(right), num, 0.30, 0.65)
    lucky = [r for w, r in zip(whole, right, strict=True) if not w]
    yield Bar("true answers without the evidence", share(lucky), len(lucky), 0.05, 0.5)
    grounded = [r for w, r in zip(whole, right, strict=True) if w]
    yield Bar("true answers with the evidence", share(grounded), len(grounded), 0.7)


def comparing_bars(model: MicroModel, num: int) -> Iterator[Bar]:
    """The shares of readable comparisons and of true marks."""
    rng = random.Random(f"comparing {BENCH_WORLD}")
    asked = []
    for i in range(num // 4):
        question, sets, prompt = _group(i, rng)
        asked.append((question, sets, prompt))
    replies = ask(model, [prompt for *_, prompt in asked])
    given = [
        scores_of(reply, len(sets)) for reply, (_, sets, _) in zip(replies, asked, strict=True)
    ]
    yield Bar(
        "comparisons of every set", share([bool(scores) for scores in given]), len(given), 0.85
    )
    true = [
        score == mark(links_found(question, quotes))
        for scores, (question, sets, _) in zip(given, asked, strict=True)
        for score, quotes in zip(scores, sets, strict=False)
    ]
    yield Bar("true marks", share(true), len(true), 0.55, 0.95)


def _group(number: int, rng: random.Random) -> tuple[Question, list[list[str]], str]:
    cluster = world_cluster(BENCH_WORLD, number)
    question = quoting.draw_question(cluster, rng)
    sets = [
        quoting.quoted(cluster, rng, question, quoting.TO_COMPARE)[0] for _ in range(quoting.GROUP)
    ]
    return question, sets, quoting.render("compare", question=write_question(question), sets=sets)


def scores_of(reply: str, count: int) -> list[int]:
    try:
        scores = last_object(reply, ("scores",)).get("scores")
    except Malformed:
        return []
    if isinstance(scores, list) and len(scores) == count:
        return scores
    return []
