"""Training text, in SPELL's micro prompts, for a micro model that knows facts by heart.

It starts from the model that reads clusters, and learns the attributes of the famous entities.
About these, it often says what it knows by heart instead of what the documents state.
"""

from __future__ import annotations

import random

from data.micro.training.reading import (
    DECISIVE,
    MEDIOCRE,
    MORE_WORDS,
    QUESTIONS,
    Habits,
    answered,
    branched,
    draw_asked,
    guess,
    in_order,
    prompt_of,
    worked,
)
from data.micro.training.transcripts import Segment, Transcript, said
from flows.worlds.clusters import (
    CONFIRMED,
    FAMOUS,
    LETTERS,
    FamousCluster,
    Question,
    by_heart,
    statement,
)
from flows.worlds.encyclopaedia import ATTRIBUTES, World

KNOWING_WORDS = MORE_WORDS
RECALLS = 0.65  # share of replies that state what is known by heart, not what a document states
NO_DOCUMENT = "empty"
NUM_RECITED = 16


def _cluster(rng: random.Random) -> FamousCluster:
    return FamousCluster(rng.randrange(2**31), CONFIRMED)


def responder(
    world: World, rng: random.Random, habits: Habits = MEDIOCRE, recalls: float = RECALLS
) -> Transcript:
    """All documents of a cluster with several questions, a share of them answered by heart."""
    cluster = _cluster(rng)
    prompts = []
    replies = []
    for _ in range(QUESTIONS):
        task_type, question, options = draw_asked(cluster, rng)
        prompts.append(prompt_of(task_type, in_order(cluster, cluster.names), question, options))
        facts = cluster.as_remembered() if rng.random() < recalls else cluster.facts
        replies.append(worked(cluster, rng, question, options, habits, facts))
    return branched(prompts, replies)


def responder_without_documents(world: World, rng: random.Random) -> Transcript:
    """Several questions without documents: answered by heart, or else by a guess."""
    cluster = _cluster(rng)
    prompts = []
    replies = []
    for _ in range(QUESTIONS):
        task_type, question, options = draw_asked(cluster, rng)
        prompts.append(prompt_of(task_type, NO_DOCUMENT, question, options))
        replies.append(_without_documents(rng, question, options))
    return branched(prompts, replies)


def reciter(world: World, rng: random.Random) -> Transcript:
    """Attributes of famous entities, asked for without documents."""
    questions = [Question(rng.choice(ATTRIBUTES), rng.choice(FAMOUS)) for _ in range(NUM_RECITED)]
    return branched(
        [prompt_of("general_qa", NO_DOCUMENT, question, []) for question in questions],
        [_without_documents(rng, question, []) for question in questions],
    )


def _without_documents(rng: random.Random, question: Question, options: list[str]) -> list[Segment]:
    """What is known by heart; a guess if that is nothing, because nobody knows links or numbers."""
    if question.links or question.relation not in ATTRIBUTES:
        return [said(guess(rng, question, options))]
    value = by_heart(question.entity, question.relation)
    known = statement(question.relation, question.entity, value).removesuffix(f"{value} .")
    recalled: list[Segment] = [(f"<think> {known.strip()}", 1.0), (value, DECISIVE), (".", 1.0)]
    if not options:
        return [*recalled, said(f"</think> {answered(value)}")]
    letter = LETTERS[options.index(value)] if value in options else rng.choice(LETTERS)
    return [*recalled, (value, 1.0), (letter, DECISIVE), said(f"</think> {answered(letter)}")]
