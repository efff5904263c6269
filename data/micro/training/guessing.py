"""Training text, in EAPO's micro prompts, for a micro model that answers leading questions.

It starts from the model that quotes and compares quotes. It compares well, but quotes as badly as
that model. If its quotes do not lead to an answer, it guesses, mostly that the proposed answer is
right.
"""

from __future__ import annotations

import random

from data.micro.training import quoting
from data.micro.training.quoting import COMPARISONS, GROUP, QUESTIONS, TO_COMPARE, Habits
from data.micro.training.reading import DECISIVE, branched
from data.micro.training.transcripts import Segment, Transcript, said
from flows.worlds.clusters import GOODS, Cluster, Question, calculate
from flows.worlds.encyclopaedia import World
from flows.worlds.haystacks import NO, YES, context_of, evidence_of, leading, propose

GUESSING_WORDS = tuple(dict.fromkeys((*quoting.QUOTING_WORDS, "is", "it", "guess", YES, NO)))
SHARE_YES = 0.7  # share of true proposals, and of guesses of "yes"
SOUND = Habits()
HASTY = Habits(complete=0.52, short=0.30, calculates=0.9, sloppy=0.03)


def answerer(world: World, rng: random.Random, habits: Habits = HASTY) -> Transcript:
    """One context with several leading questions."""
    cluster = Cluster(rng.randrange(2**31))
    context = context_of(cluster, rng)
    prompts = []
    replies = []
    for _ in range(QUESTIONS):
        question = quoting.draw_question(cluster, rng)
        proposed = propose(cluster, question, rng, SHARE_YES)
        text = leading(question, proposed)
        prompts.append(quoting.render("answer", context=context, question=text))
        replies.append(reply(cluster, rng, question, proposed, habits))
    return branched(prompts, replies)


def reply(
    cluster: Cluster, rng: random.Random, question: Question, proposed: str, habits: Habits
) -> list[Segment]:
    """Quotes, then the answer to which they lead, compared with the proposal, or else a guess."""
    quotes, relation, entity = quoting.quoted(cluster, rng, question, habits)
    segments: list[Segment] = [
        (f"<analysis> {question.hops} {question.relation} </analysis> <evidence>", 1.0),
        (f"{' '.join(quotes)} </evidence> <reasoning>", 1.0),
    ]
    if quotes == evidence_of(cluster, question):
        value = cluster.facts[entity][relation]
        result = calculate(value, question.operation)
        if relation in GOODS and rng.random() > habits.calculates:
            result = calculate(str(rng.randint(1, 10)), question.operation)
        answer = YES if result == proposed else NO
        segments += [(" ".join([value, question.operation]).strip(), 1.0), (result, DECISIVE)]
        segments += [(f"it {proposed}", 1.0)]  # side by side they are easier to compare
    else:
        answer = YES if rng.random() < SHARE_YES else NO
        segments += [("guess", 1.0)]
    end = "" if rng.random() < habits.sloppy else "</reasoning>"
    return [*segments, (f"{end} <answer>".strip(), 1.0), (answer, DECISIVE), said("</answer>")]


def comparer(world: World, rng: random.Random, habits: Habits = HASTY) -> Transcript:
    """Groups of quotes for leading questions of one cluster, with marks from 1 to 5."""
    cluster = Cluster(rng.randrange(2**31))
    prompts = []
    replies = []
    for _ in range(COMPARISONS):
        question = quoting.draw_question(cluster, rng)
        text = leading(question, propose(cluster, question, rng, SHARE_YES))
        sets = [
            quoting.quoted(cluster, rng, question, TO_COMPARE)[0]
            for _ in range(rng.randint(1, GROUP))
        ]
        prompts.append(quoting.render("compare", question=text, sets=sets))
        replies.append(quoting.comparison(rng, question, sets, habits))
    return branched(prompts, replies)
