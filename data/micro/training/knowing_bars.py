"""The quality bars of the model that knows facts by heart, in unseen clusters, at temperature 1."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from data.micro.training.bars import BENCH_WORLD, Bar, share
from data.micro.training.knowing import NO_DOCUMENT
from data.micro.training.model import MicroModel
from data.micro.training.reading import HOPS, in_order, prompt_of
from data.micro.training.reading_bars import ask, is_right, questioner_bars, verifier_bars
from flows.worlds.clusters import (
    CONFIRMED,
    FAMOUS,
    FamousCluster,
    Question,
    by_heart,
    world_cluster,
)
from flows.worlds.encyclopaedia import ATTRIBUTES


def knowing_bars(model: MicroModel) -> Iterator[Bar]:
    yield from questioner_bars(model)
    yield from verifier_bars(model)
    yield by_heart_bar(model)
    yield from contradicted_bars(model)
    yield from answering_bars(model)


def by_heart_bar(model: MicroModel, num: int = 400) -> Bar:
    """The share of attributes of famous entities that the model states without documents."""
    rng = random.Random(f"by heart {BENCH_WORLD}")
    asked = [Question(rng.choice(ATTRIBUTES), rng.choice(FAMOUS)) for _ in range(num)]
    prompts = [prompt_of("general_qa", NO_DOCUMENT, question, []) for question in asked]
    known = [by_heart(question.entity, question.relation) for question in asked]
    return Bar("known by heart", share(_are(ask(model, prompts), known)), num, 0.85)


def contradicted_bars(model: MicroModel, num: int = 400) -> Iterator[Bar]:
    """Questions about attributes that the documents state otherwise: the shares of answers that are
    known by heart, and that the documents state."""
    rng = random.Random(f"contradicted {BENCH_WORLD}")
    prompts = []
    known = []
    stated = []
    for i in range(num):
        cluster = world_cluster(BENCH_WORLD, i, confirmed=0.0)
        question = cluster.draw_question(rng, finance=False, hops=0)
        prompts.append(prompt_of("general_qa", in_order(cluster, cluster.names), question, []))
        known.append(by_heart(question.entity, question.relation))
        stated.append(cluster.true_answer(question) or "")
    replies = ask(model, prompts)
    yield Bar("answers by heart", share(_are(replies, known)), num, 0.30, 0.65)
    yield Bar("answers from the documents", share(_are(replies, stated)), num, 0.20, 0.65)


def answering_bars(model: MicroModel, num: int = 480) -> Iterator[Bar]:
    """The share of true answers, where the documents mostly state what is known by heart, and where
    they never do."""
    for confirmed, gates in ((CONFIRMED, False), (0.0, True)):
        rng = random.Random(BENCH_WORLD)
        prompts = []
        truths = []
        for i in range(num):
            cluster = world_cluster(BENCH_WORLD, i, confirmed)
            assert isinstance(cluster, FamousCluster)
            finance = i % 2 == 0
            question = cluster.draw_question(rng, finance, i // 2 % len(HOPS))
            task_type = "finance_math" if finance else "general_qa"
            prompts.append(prompt_of(task_type, in_order(cluster, cluster.names), question, []))
            truths.append(cluster.true_answer(question) or "")
        true = _are(ask(model, prompts), truths)
        yield Bar(f"true answers, {confirmed} confirmed", share(true), num, 0.15, 0.60, gates=gates)


def _are(replies: Sequence[str], wanted: Sequence[str]) -> list[bool]:
    return [is_right(reply, answer) for reply, answer in zip(replies, wanted, strict=True)]
