"""Clusters hidden among other documents, and the sentences that answer a question, against which quotes are judged."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.micro.worlds.clusters import (
    GOODS,
    MAX_HOPS,
    Cluster,
    Question,
    statement,
    world_cluster,
    write_question,
)
from flows.micro.worlds.encyclopaedia import fact

NUM_DISTRACTORS = 2


def context_of(cluster: Cluster, rng: random.Random) -> str:
    """All documents of a cluster, and some of another one, in any order."""
    other = Cluster(rng.randrange(2**31))
    strangers = [name for name in other.names if name not in cluster.names][:NUM_DISTRACTORS]
    texts = [*cluster.texts.values(), *(other.texts[name] for name in strangers)]
    rng.shuffle(texts)
    return " ".join(texts)


def evidence_of(cluster: Cluster, question: Question) -> list[str]:
    """The sentences that lead to the answer, one for every step."""
    chain = cluster.chain(question.entity, question.links) or [question.entity]
    steps = [fact(link, at, to) for link, at, to in zip(question.links, chain, chain[1:], strict=False)]
    return [*steps, statement(question.relation, chain[-1], cluster.facts[chain[-1]][question.relation])]


@dataclass(frozen=True)
class Haystack:
    """A held-out question, its answer, its context, and the sentences of the context that answer it."""

    task_id: str
    question: str
    answer: str
    hops: int
    context: str
    evidence: tuple[str, ...]


def haystacks(seed: int, count: int) -> Iterator[Haystack]:
    """Questions of 0 to `MAX_HOPS` hops in turn, two in five about goods, each about its own one of 1,000 clusters."""
    rng = random.Random(seed)
    for i in range(count):
        cluster = world_cluster(seed, i % 1000)
        question = cluster.draw_question(rng, i % 5 < 2, i // 5 % (MAX_HOPS + 1))
        about = write_question(question), cluster.true_answer(question) or "", question.hops
        evidence = tuple(evidence_of(cluster, question))
        yield Haystack(f"haystack-{seed}-{i:04d}", *about, context_of(cluster, rng), evidence)


def links_found(question: Question, quotes: Sequence[str]) -> list[bool]:
    """Whether the quotes hold each step to the answer; a step begins where the one before it ended.

    >>> links_found(Question("craft", "Ba", ("ruler",)), ["Ba has ruler Ce .", "Ba has craft mito ."])
    [True, False]
    """
    at: str | None = question.entity
    found = []
    for relation in (*question.links, question.relation):
        begins = f"{at} : {relation} " if relation in GOODS else f"{at} has {relation} "
        said_of = [quote.removeprefix(begins).split()[0] for quote in quotes if at and quote.startswith(begins)]
        at = said_of[0] if said_of else None
        found.append(at is not None)
    return found


def mark(steps: Sequence[bool]) -> int:
    """
    >>> mark([True, True]), mark([True, False]), mark([False]), mark([True, True, False])
    (5, 3, 1, 4)
    """
    return 1 + round(4 * sum(steps) / len(steps))
