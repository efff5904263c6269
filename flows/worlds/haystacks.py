"""Clusters hidden among other documents, and the sentences that answer questions about them.

Quotes are judged against these sentences. A leading question also proposes an answer; a model that
has not found the evidence tends to guess that the proposal is right.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.worlds.clusters import (
    GOODS,
    MAX_HOPS,
    Cluster,
    Question,
    calculate,
    statement,
    world_cluster,
    write_question,
)
from flows.worlds.encyclopaedia import VALUES, fact

NUM_DISTRACTORS = 2
YES = "yes"
NO = "no"
_PROPOSAL = re.compile(r" is it \S+ \?$")


def context_of(cluster: Cluster, rng: random.Random) -> str:
    """All documents of a cluster and some of another one, in random order."""
    other = Cluster(rng.randrange(2**31))
    strangers = [name for name in other.names if name not in cluster.names][:NUM_DISTRACTORS]
    texts = [*cluster.texts.values(), *(other.texts[name] for name in strangers)]
    rng.shuffle(texts)
    return " ".join(texts)


def evidence_of(cluster: Cluster, question: Question) -> list[str]:
    """The sentences that lead to the answer, one per step."""
    chain = cluster.chain(question.entity, question.links) or [question.entity]
    sentences = [
        fact(link, at, to) for link, at, to in zip(question.links, chain, chain[1:], strict=False)
    ]
    end = chain[-1]
    value = cluster.facts[end][question.relation]
    return [*sentences, statement(question.relation, end, value)]


def leading(question: Question, proposed: str) -> str:
    """
    >>> leading(Question("craft", "Baba", ("ruler",)), "lomicr")
    'what is the craft of the ruler of Baba ? is it lomicr ?'
    """
    return f"{write_question(question)} is it {proposed} ?"


def without_proposal(text: str) -> str:
    """
    >>> without_proposal("what is the craft of Baba ? is it lomicr ?")
    'what is the craft of Baba ?'
    """
    return _PROPOSAL.sub("", " ".join(text.split()))


def propose(cluster: Cluster, question: Question, rng: random.Random, share_yes: float) -> str:
    """Propose an answer to a question: the true one with probability `share_yes`, else a wrong one,
    from another document of the cluster if possible."""
    truth = cluster.true_answer(question) or ""
    if rng.random() < share_yes:
        return truth
    relation = question.relation
    values = [facts[relation] for facts in cluster.facts.values() if relation in facts]
    others = {calculate(value, question.operation) for value in values} - {truth}
    if others:
        return rng.choice(sorted(others))
    if relation in GOODS:
        of_one = calculate("1", question.operation)
        if of_one != truth:
            return of_one
        return calculate("2", question.operation)
    return rng.choice([value for value in VALUES[relation] if value != truth])


@dataclass(frozen=True)
class Haystack:
    """A held-out question, its answer, its context, and the sentences of the context that answer
    it."""

    task_id: str
    question: str
    answer: str
    hops: int
    context: str
    evidence: tuple[str, ...]


def haystacks(seed: int, count: int, share_yes: float | None = None) -> Iterator[Haystack]:
    """Questions of 0 to `MAX_HOPS` hops in turn, two in five about goods, which go through 1,000
    clusters in turn.

    With `share_yes`, all are leading questions, and this share of them proposes the true answer.
    Contexts and evidence do not depend on it.
    """
    rng = random.Random(seed)
    for i in range(count):
        cluster = world_cluster(seed, i % 1000)
        question = cluster.draw_question(rng, i % 5 < 2, i // 5 % (MAX_HOPS + 1))
        text = write_question(question)
        answer = cluster.true_answer(question) or ""
        if share_yes is not None:
            proposed = propose(cluster, question, random.Random(f"{seed} {i} proposed"), share_yes)
            text = leading(question, proposed)
            answer = YES if proposed == answer else NO
        yield Haystack(
            task_id=f"haystack-{seed}-{i:04d}",
            question=text,
            answer=answer,
            hops=question.hops,
            context=context_of(cluster, rng),
            evidence=tuple(evidence_of(cluster, question)),
        )


def links_found(question: Question, quotes: Sequence[str]) -> list[bool]:
    """For each step to the answer, whether the quotes contain it; a step begins where the previous
    one ended.

    >>> question = Question("craft", "Ba", ("ruler",))
    >>> links_found(question, ["Ba has ruler Ce .", "Ba has craft mito ."])
    [True, False]
    """
    entity: str | None = question.entity
    is_found = []
    for relation in (*question.links, question.relation):
        if entity is not None:
            entity = _stated_value(relation, entity, quotes)
        is_found.append(entity is not None)
    return is_found


def _stated_value(relation: str, entity: str, quotes: Sequence[str]) -> str | None:
    """The value stated by the first quote about an entity's relation; None if there is no such
    quote."""
    beginning = f"{entity} has {relation} "
    if relation in GOODS:
        beginning = f"{entity} : {relation} "  # a row of a table
    for quote in quotes:
        if quote.startswith(beginning):
            return quote.removeprefix(beginning).split()[0]
    return None


def mark(steps: Sequence[bool]) -> int:
    """
    >>> mark([True, True]), mark([True, False]), mark([False]), mark([True, True, False])
    (5, 3, 1, 4)
    """
    return 1 + round(4 * sum(steps) / len(steps))
