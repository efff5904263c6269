"""Training text, in EAPO's micro prompts, for a micro model that quotes before it answers and
compares quotes.

It starts from SPELL's micro model, which reads clusters. It is deliberately mediocre: it often
quotes too little or the wrong sentences, sometimes knows the answer without them, and sometimes
errs when comparing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

from data.micro.training.reading import DECISIVE, HOPS, MORE_WORDS, branched
from data.micro.training.transcripts import Segment, Transcript, said
from flows.runtime.store_root import SOURCE
from flows.worlds.clusters import (
    GOODS,
    Cluster,
    Question,
    calculate,
    statement,
    write_question,
)
from flows.worlds.encyclopaedia import World
from flows.worlds.haystacks import context_of, evidence_of, links_found, mark
from tasks.prompt import Template

PROMPTS = SOURCE / "flows" / "eapo" / "prompts" / "micro"
_TAGS = "<analysis> </analysis> <evidence> </evidence> <reasoning> </reasoning>"
_MARKS = '[ ] "reason" "scores" "best_choice" facts'
QUOTING_WORDS = tuple(dict.fromkeys((*MORE_WORDS, *_TAGS.split(), *_MARKS.split())))
QUESTIONS = 4
COMPARISONS = 2
GROUP = 6


@dataclass(frozen=True)
class Habits:
    """How often the model quotes everything that leads to the answer, stops short, or quotes
    something else; knows the answer to a plain question without quoting it; calculates correctly;
    leaves out a part; and misjudges a quote when comparing."""

    complete: float = 1.0
    short: float = 0.0
    lucky: float = 0.0
    calculates: float = 1.0
    sloppy: float = 0.0
    misjudges: float = 0.0


SOUND = Habits()
TO_COMPARE = Habits(complete=0.4, short=0.3)
MEDIOCRE = Habits(complete=0.5, short=0.3, lucky=0.85, calculates=0.8, sloppy=0.05, misjudges=0.12)


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def render(name: str, **values: Any) -> str:
    return " ".join(_template(name).render(**values).split())


# ---- answering ----


def answerer(world: World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """One context with several questions."""
    cluster = Cluster(rng.randrange(2**31))
    context = context_of(cluster, rng)
    prompts = []
    replies = []
    for _ in range(QUESTIONS):
        question = draw_question(cluster, rng)
        prompts.append(render("answer", context=context, question=write_question(question)))
        replies.append(_reply(cluster, rng, question, habits))
    return branched(prompts, replies)


def draw_question(cluster: Cluster, rng: random.Random) -> Question:
    return cluster.draw_question(rng, rng.random() < 0.4, rng.choices(range(3), HOPS)[0])


def _reply(
    cluster: Cluster, rng: random.Random, question: Question, habits: Habits
) -> list[Segment]:
    quotes, relation, entity = quoted(cluster, rng, question, habits)
    value = cluster.facts[entity][relation]
    if not question.links and rng.random() < habits.lucky:
        value = cluster.facts[question.entity][question.relation]
    operation = ""
    if relation in GOODS:
        operation = question.operation
    answer = value
    if rng.random() < habits.calculates:
        answer = calculate(value, operation)
    reasoning = f"{value} {operation}".strip()
    plan: list[Segment] = [
        (f"<analysis> {question.hops} {question.relation} </analysis> <evidence>", 1.0)
    ]
    plan += [(f"{' '.join(quotes)} </evidence> <reasoning> {reasoning}", 1.0)]
    end = "</reasoning>"
    if rng.random() < habits.sloppy:
        end = ""
    return [*plan, (answer, DECISIVE), said(f"{end} <answer> {answer} </answer>".strip())]


def quoted(
    cluster: Cluster, rng: random.Random, question: Question, habits: Habits
) -> tuple[list[str], str, str]:
    """The quotes, and the relation and the entity of the last one."""
    drawn = rng.random()
    whole = evidence_of(cluster, question)
    chain = cluster.chain(question.entity, question.links) or [question.entity]
    if drawn < habits.complete:
        return whole, question.relation, chain[-1]
    if drawn < habits.complete + habits.short and question.links:
        reached = rng.randrange(len(question.links))
        entity = chain[reached]
        if question.relation in cluster.facts[entity]:
            relation = question.relation
        else:
            relation = cluster.attributes(entity)[0]
        return (
            [*whole[:reached], statement(relation, entity, cluster.facts[entity][relation])],
            relation,
            entity,
        )
    entity = rng.choice(cluster.names)
    if question.relation in cluster.facts[entity]:
        relation = question.relation
    else:
        relation = cluster.attributes(entity)[0]
    return [statement(relation, entity, cluster.facts[entity][relation])], relation, entity


# ---- comparing ----


def comparer(world: World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """Groups of quotes for questions of one cluster, with marks from 1 to 5."""
    cluster = Cluster(rng.randrange(2**31))
    prompts = []
    replies = []
    for _ in range(COMPARISONS):
        question = draw_question(cluster, rng)
        sets = [quoted(cluster, rng, question, TO_COMPARE)[0] for _ in range(rng.randint(1, GROUP))]
        prompts.append(render("compare", question=write_question(question), sets=sets))
        replies.append(comparison(rng, question, sets, habits))
    return branched(prompts, replies)


def comparison(
    rng: random.Random, question: Question, sets: list[list[str]], habits: Habits
) -> list[Segment]:
    judged = [
        [step != (rng.random() < habits.misjudges) for step in links_found(question, quotes)]
        for quotes in sets
    ]
    marks = [mark(steps) for steps in judged]
    segments: list[Segment] = [("<think>", 1.0)]
    for number, (steps, given) in enumerate(zip(judged, marks, strict=True)):
        words = " ".join("yes" if step else "no" for step in steps)
        segments += [(f"{number} :", 1.0), (words, DECISIVE), (f"{given} ;", 1.0)]
    scores = " , ".join(map(str, marks))
    best = marks.index(max(marks))
    return [
        *segments,
        (
            f'</think> {{ "reason" : " facts " , "scores" : [ {scores} ] , "best_choice" : {best}',
            1.0,
        ),
        said("}"),
    ]
