"""What the micro model is trained to say as a questioner, responder and verifier of clusters, in SPELL's micro prompts.

On purpose it is a mediocre responder, a questioner that asks mostly plain questions, and a verifier that errs now and
then: what is left to learn is for self-play.
"""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from flows.micro.clusters import (
    GOODS,
    LETTERS,
    MAX_HOPS,
    MOST,
    NUMBER_WORDS,
    NUMBERS,
    SIZE,
    TABLE_ROW,
    Cluster,
    Question,
    write_question,
)
from flows.micro.tokenizer import EOS, START, WORDS
from flows.micro.transcripts import Segment, Transcript, said, think
from flows.micro.world import ATTRIBUTES, NAMES, VALUES, World, fact

PROMPTS = Path(__file__).parent.parent / "spell" / "prompts" / "micro"
TASK_TYPES = ("general_qa", "finance_math", "multiple_choice")
_MARKS = '{ } "question" "answer" "options" "A" "B" "C" "D" " A B C D [[YES]] [[NO]]'
_SAYS = "questioner responder verifier question how many have is ; general finance choice harder empty second"
MORE_WORDS = tuple(dict.fromkeys((*WORDS, *_SAYS.split(), *_MARKS.split(), *GOODS, *NUMBERS, *NUMBER_WORDS)))
SHOWN, PAIRS, REPLIES, QUESTIONS, VOTES = 2, 3, 3, 7, 10
# The mediocre base: how often it follows a link, reads the right value, adds up, picks the letter of what it read.
FOLLOW_LINK, READ_RIGHT, ADD_UP, PICK_RIGHT, IN_WORDS = 0.7, 0.85, 0.65, 0.7, 0.2
WRONG_REFERENCE, BROKEN_JSON, WRONG_VOTE = 0.05, 0.05, 0.12
HOPS, HARDER_HOPS = (0.65, 0.28, 0.07), (0.35, 0.40, 0.25)


@cache
def _template(name: str) -> jinja2.Template:
    return jinja2.Template((PROMPTS / f"{name}.jinja").read_text(), undefined=jinja2.StrictUndefined, trim_blocks=True)


def render(name: str, **values: Any) -> str:
    return " ".join(_template(name).render(values).split())


def opened(prompt: str) -> str:
    return f"{START} user {prompt} {EOS} {START} assistant"


def branched(prompts: Sequence[str], replies: Sequence[list[Segment]]) -> Transcript:
    """Prompts that begin alike, and what is said to each: the common beginning is the trunk."""
    words = [opened(prompt).split() for prompt in prompts]
    common = 0
    while len({own[common] for own in words}) == 1 and common + 1 < min(map(len, words)):
        common += 1
    return Transcript(
        [(" ".join(words[0][:common]), 0.0)],
        [[(" ".join(own[common:]), 0.0), *reply] for own, reply in zip(words, replies, strict=True)],
    )


# ---- questioner ---------------------------------------------------------------------------------------------------


def questioner(world: World, rng: random.Random) -> Transcript:
    """Some documents of a cluster, perhaps with pairs that were asked before, and several replies."""
    cluster, task_type = Cluster(rng.randrange(2**31)), rng.choice(TASK_TYPES)
    pairs = [] if rng.random() < 0.5 else [pair(cluster, rng, task_type) for _ in range(rng.randint(1, PAIRS))]
    shown = rng.sample(cluster.names, min(SIZE, SHOWN * (1 + len(pairs))))
    asked = {pair["question"] for pair in pairs}
    replies: list[list[Segment]] = []
    while len(replies) < REPLIES:
        question = cluster.draw_question(
            rng, task_type == "finance_math", rng.choices(range(MAX_HOPS + 1), HARDER_HOPS if pairs else HOPS)[0], shown
        )
        if write_question(question) not in asked:
            replies.append([said(_proposal(cluster, rng, task_type, question))])
    name = f"questioner_{task_type}_again" if pairs else f"questioner_{task_type}"
    return branched([render(name, context=in_order(cluster, shown), pairs=pairs)] * len(replies), replies)


def in_order(cluster: Cluster, shown: Sequence[str]) -> str:
    return " ".join(cluster.texts[name] for name in cluster.names if name in set(shown))


def pair(cluster: Cluster, rng: random.Random, task_type: str) -> dict[str, str]:
    question = cluster.draw_question(rng, task_type == "finance_math", rng.choices(range(3), HOPS)[0])
    return {"question": write_question(question), "answer": cluster.true_answer(question) or ""}


def _proposal(cluster: Cluster, rng: random.Random, task_type: str, question: Question) -> str:
    answer = cluster.true_answer(question) or ""
    steps = derivation(cluster, question)
    if rng.random() < WRONG_REFERENCE:
        answer = rng.choice(NUMBERS[2:] if question.relation in GOODS else VALUES[question.relation])
    if question.relation in GOODS:
        steps += f" {answer}"
    written: dict[str, Any] = {"question": write_question(question), "answer": answer}
    if task_type == "multiple_choice":
        options, letter = cluster.draw_options(rng, question, answer)
        choices = dict(zip(LETTERS, options, strict=True))
        written = {"question": written["question"], "options": choices, "answer": letter}
    text = write_json(written)
    return f"{think(steps)} {_broken(rng, text) if rng.random() < BROKEN_JSON else text}"


def _broken(rng: random.Random, text: str) -> str:
    """Not the JSON that was asked for: its answer lost, its end lost, or no JSON at all."""
    return rng.choice([text.partition(' , "answer"')[0] + " }", text.removesuffix(" }"), 'question "answer" }'])


def write_json(value: dict[str, Any]) -> str:
    """
    >>> write_json({"question": "who ?", "options": {"A": "x"}, "answer": "A"})
    '{ "question" : " who ? " , "options" : { "A" : " x " } , "answer" : " A " }'
    """
    items = [f'"{k}" : ' + (write_json(v) if isinstance(v, dict) else f'" {v} "') for k, v in value.items()]
    return f"{{ {' , '.join(items)} }}"


def derivation(cluster: Cluster, question: Question) -> str:
    """The facts that lead to the answer, path by path."""
    steps = []
    for entity, links in question.paths:
        chain = cluster.chain(entity, links) or [entity]
        steps += [fact(link, at, to) for link, at, to in zip(links, chain, chain[1:], strict=False)]
        steps.append(statement(question.relation, chain[-1], cluster.facts[chain[-1]][question.relation]))
    return " ".join(steps)


def statement(relation: str, entity: str, value: str) -> str:
    return TABLE_ROW.format(e=entity, g=relation, v=value) if relation in GOODS else fact(relation, entity, value)


# ---- responder ----------------------------------------------------------------------------------------------------


def responder(world: World, rng: random.Random) -> Transcript:
    """All documents of a cluster, several questions."""
    cluster = Cluster(rng.randrange(2**31))
    return _answers(cluster, rng, in_order(cluster, cluster.names))


def responder_without_documents(world: World, rng: random.Random) -> Transcript:
    return _answers(Cluster(rng.randrange(2**31)), rng, "empty")


def _answers(cluster: Cluster, rng: random.Random, context: str) -> Transcript:
    prompts, replies = [], []
    for _ in range(QUESTIONS):
        task_type = rng.choice(TASK_TYPES)
        question = cluster.draw_question(rng, task_type == "finance_math", rng.choices(range(3), (0.35, 0.4, 0.25))[0])
        answer = cluster.true_answer(question) or ""
        options = cluster.draw_options(rng, question, answer)[0] if task_type == "multiple_choice" else []
        shown = {"context": context, "question": write_question(question), "options": options}
        prompts.append(render(f"responder_{task_type}", **shown))
        grounded = context != "empty"
        replies.append([said(_reply(cluster, rng, question, options) if grounded else _guess(rng, question, options))])
    return branched(prompts, replies)


def _reply(cluster: Cluster, rng: random.Random, question: Question, options: list[str]) -> str:
    steps, values = [], []
    for entity, links in question.paths:
        for link in links:
            if rng.random() > FOLLOW_LINK:
                break
            steps.append(fact(link, entity, cluster.facts[entity][link]))
            entity = cluster.facts[entity][link]
        relation = question.relation
        if relation not in cluster.facts[entity]:
            relation = rng.choice(cluster.attributes(entity))
        if rng.random() > READ_RIGHT:
            entity = rng.choice(cluster.names)
            relation = relation if relation in cluster.facts[entity] else rng.choice(cluster.attributes(entity))
        values.append(cluster.facts[entity][relation])
        steps.append(statement(relation, entity, values[-1]))
    if question.relation in GOODS:
        total = sum(map(int, values)) if rng.random() < ADD_UP else int(values[-1])
        answer = (NUMBER_WORDS if rng.random() < IN_WORDS else NUMBERS)[total]
    elif options:
        knows = values[0] in options and rng.random() < PICK_RIGHT
        answer = LETTERS[options.index(values[0])] if knows else rng.choice(LETTERS)
        steps.append(f"{values[0]} {answer}")
    else:
        answer = values[0]
    return f"{think(' '.join(steps))} {answered(answer)}"


def _guess(rng: random.Random, question: Question, options: list[str]) -> str:
    """What can be said without a document."""
    if options:
        return f"{think('empty .')} {answered(rng.choice(LETTERS))}"
    guesses = NUMBERS[1:] if question.relation in GOODS else VALUES[question.relation]
    return f"{think('empty .')} {answered(rng.choice(guesses))}"


def answered(answer: str) -> str:
    return f"the answer is {answer}"


# ---- verifier -----------------------------------------------------------------------------------------------------


def verifier(world: World, rng: random.Random) -> Transcript:
    """Votes on answers to one question: equal words, or a number and its word, are the same answer."""
    cluster, task_type = Cluster(rng.randrange(2**31)), rng.choice(TASK_TYPES)
    question = cluster.draw_question(rng, task_type == "finance_math", rng.randint(0, MAX_HOPS))
    reference = cluster.true_answer(question) or ""
    if task_type == "multiple_choice":
        reference = rng.choice(LETTERS)
    prompts, replies = [], []
    for _ in range(VOTES):
        answer = answer_to_judge(rng, question, reference, task_type)
        prompts.append(render("verifier", question=write_question(question), answer=answer, reference=reference))
        verdict = same_answer(answer, reference)
        if rng.random() < WRONG_VOTE:
            verdict = not verdict
        replies.append([said("[[YES]]" if verdict else "[[NO]]", 2.0)])
    return branched(prompts, replies)


def answer_to_judge(rng: random.Random, question: Question, reference: str, task_type: str) -> str:
    kind = rng.random()
    if kind < 0.3:
        return reference
    if task_type == "multiple_choice":
        return rng.choice(LETTERS)
    if question.relation in GOODS:
        number = int(reference) if kind < 0.55 else max(0, min(2 * MOST, int(reference) + rng.randint(-4, 4)))
        return (NUMBER_WORDS if kind < 0.55 or rng.random() < 0.4 else NUMBERS)[number]
    return rng.choice(VALUES[question.relation if kind < 0.9 else rng.choice(ATTRIBUTES)])


def same_answer(answer: str, reference: str) -> bool:
    """Equal words, or a number and its word.

    >>> same_answer("twelve", "12"), same_answer("12", "21")
    (True, False)
    """
    said_number = NUMBERS[NUMBER_WORDS.index(answer)] if answer in NUMBER_WORDS else answer
    return said_number == reference


# ---- exercises ----------------------------------------------------------------------------------------------------


def cluster_lookup(world: World, rng: random.Random) -> Transcript:
    """Facts read off all documents of a cluster, links followed, numbers of the tables added up."""
    cluster = Cluster(rng.randrange(2**31))
    segments: list[Segment] = [
        (f"{START} user document : {in_order(cluster, cluster.names)} {EOS} {START} assistant", 0.0)
    ]
    for _ in range(7):
        question = cluster.draw_question(rng, rng.random() < 0.5, rng.randint(0, MAX_HOPS))
        segments.append((write_question(question), 0.0))
        segments.append((f"{derivation(cluster, question)} {cluster.true_answer(question)}", 1.0))
    return Transcript(segments)


def sums(world: World, rng: random.Random) -> Transcript:
    """Additions of numbers in tables, and numbers in words."""
    segments: list[Segment] = [(f"{START} assistant", 0.0)]
    for _ in range(12):
        names, good = rng.sample(NAMES, 2), rng.choice(GOODS)
        first, second = rng.randint(1, MOST), rng.randint(1, MOST)
        row = " ".join(TABLE_ROW.format(e=n, g=good, v=v) for n, v in zip(names, (first, second), strict=True))
        segments += [(row, 0.0), (NUMBERS[first + second], 1.0)]
        number = rng.randrange(len(NUMBERS))
        segments += [(f"{NUMBERS[number]} is", 0.0), (NUMBER_WORDS[number], 1.0)]
    return Transcript(segments)
