"""Training text of the micro model as questioner about clusters, in SPELL's micro prompts.

Deliberately, most questions are plain.
"""

import random
from typing import Any

from data.micro.training.reading import (
    DECISIVE,
    MEDIOCRE,
    TASK_TYPES,
    Habits,
    branched,
    in_order,
    render,
    statement,
)
from data.micro.training.transcripts import Segment, Transcript, said
from flows.worlds.clusters import (
    GOODS,
    LETTERS,
    MAX_HOPS,
    NUMBERS,
    SIZE,
    Cluster,
    Question,
    write_question,
)
from flows.worlds.encyclopaedia import VALUES, World, fact

SHOWN = 2
PAIRS = 3
REPLIES = 3
HOPS = (0.65, 0.28, 0.07)
HARDER_HOPS = (0.35, 0.40, 0.25)


def questioner(world: World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """Some documents of a cluster, perhaps with earlier question-answer pairs, and several replies.

    A question begins at the last document; its links lead to the others.
    """
    cluster = Cluster(rng.randrange(2**31))
    task_type = rng.choice(TASK_TYPES)
    if rng.random() < 0.5:
        pairs = []
    else:
        pairs = [pair(cluster, rng, task_type) for _ in range(rng.randint(1, PAIRS))]
    shown = rng.sample(cluster.names, min(SIZE, SHOWN * (1 + len(pairs))))
    asked = {pair["question"] for pair in pairs}
    last = max(shown, key=cluster.names.index)
    name = f"questioner_{task_type}"
    weights = HOPS
    if pairs:
        name = f"questioner_{task_type}_again"
        weights = HARDER_HOPS
    replies: list[list[Segment]] = []
    for attempt in range(20 * REPLIES):
        hops = rng.choices(range(MAX_HOPS + 1), weights)[0]
        question = cluster.draw_question(rng, task_type == "finance_math", hops, shown, last)
        if len(replies) < REPLIES and (write_question(question) not in asked or attempt > 20):
            replies.append(_proposal(cluster, rng, task_type, question, habits))
    return branched(
        [render(name, context=in_order(cluster, shown), pairs=pairs)] * len(replies), replies
    )


def pair(cluster: Cluster, rng: random.Random, task_type: str) -> dict[str, str]:
    question = cluster.draw_question(
        rng, task_type == "finance_math", rng.choices(range(3), HOPS)[0]
    )
    return {"question": write_question(question), "answer": cluster.true_answer(question) or ""}


def _proposal(
    cluster: Cluster, rng: random.Random, task_type: str, question: Question, habits: Habits
) -> list[Segment]:
    answer = cluster.true_answer(question) or ""
    if rng.random() < habits.wrong_reference:
        values = VALUES.get(question.relation, ())
        if question.relation in GOODS:
            values = NUMBERS[2:]
        answer = rng.choice(values)
    total: list[Segment] = []
    if question.operation:
        total = [(question.operation, 1.0), (answer, DECISIVE)]
    written: dict[str, Any] = {"question": write_question(question), "answer": answer}
    if task_type == "multiple_choice":
        options, letter = cluster.draw_options(rng, question, answer)
        choices = dict(zip(LETTERS, options, strict=True))
        written = {"question": written["question"], "options": choices, "answer": letter}
        total = [(f"{answer} {letter}", 1.0)]
    text = write_json(written)
    subject: list[Segment] = [("<think> about", 1.0), (question.entity, DECISIVE)]
    thought = [*subject, (f". {derivation(cluster, question)}", 1.0), *total, ("</think>", 1.0)]
    if rng.random() < habits.broken_json:
        return [*thought, said(_broken(rng, text))]
    before, _, after = text.rpartition(f'" {written["answer"]} "')
    return [*thought, (f'{before}"', 1.0), (written["answer"], DECISIVE), said(f'"{after}')]


def _broken(rng: random.Random, text: str) -> str:
    """Broken output: JSON without its answer, JSON without its end, or no JSON at all."""
    return rng.choice(
        [text.partition(' , "answer"')[0] + " }", text.removesuffix(" }"), 'question "answer" }']
    )


def write_json(value: dict[str, Any]) -> str:
    """
    >>> write_json({"question": "who ?", "options": {"A": "x"}, "answer": "A"})
    '{ "question" : " who ? " , "options" : { "A" : " x " } , "answer" : " A " }'
    """
    items = [
        f'"{k}" : ' + (write_json(v) if isinstance(v, dict) else f'" {v} "')
        for k, v in value.items()
    ]
    return f"{{ {' , '.join(items)} }}"


def derivation(cluster: Cluster, question: Question) -> str:
    """The facts that lead to the answer."""
    chain = cluster.chain(question.entity, question.links) or [question.entity]
    steps = [
        fact(link, at, to) for link, at, to in zip(question.links, chain, chain[1:], strict=False)
    ]
    return " ".join(
        [
            *steps,
            statement(question.relation, chain[-1], cluster.facts[chain[-1]][question.relation]),
        ]
    )
