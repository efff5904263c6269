"""Training text of the micro model as responder and verifier on clusters, in SPELL's micro prompts;
that of the questioner is in `asking`.

It is deliberately a mediocre responder, and a verifier that sometimes errs: self-play must teach it
the rest.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from data.micro.training.tokenizer import EOS, START, WORDS
from data.micro.training.transcripts import Segment, Transcript, said, think
from flows.runtime.store_root import SOURCE
from flows.worlds.clusters import (
    GOODS,
    LETTERS,
    MAX_HOPS,
    MOST,
    NUMBER_WORDS,
    NUMBERS,
    OPERATIONS,
    TABLE_ROW,
    Cluster,
    Question,
    calculate,
    same_answer,
    statement,
    write_question,
)
from flows.worlds.encyclopaedia import ATTRIBUTES, NAMES, VALUES, World, fact

PROMPTS = SOURCE / "flows" / "spell" / "prompts" / "micro"
TASK_TYPES = ("general_qa", "finance_math", "multiple_choice")
_MARKS = '{ } "question" "answer" "options" "A" "B" "C" "D" " A B C D [[YES]] [[NO]]'
_SAYS = (
    "questioner responder verifier question how many have is ; general finance choice harder empty"
    " second"
)
MORE_WORDS = tuple(
    dict.fromkeys(
        (*WORDS, *_SAYS.split(), *_MARKS.split(), *OPERATIONS, *GOODS, *NUMBERS, *NUMBER_WORDS)
    )
)
QUESTIONS = 7
VOTES = 10
HOPS = (0.35, 0.40, 0.25)
DECISIVE = 4.0  # weight of the words that decide a reply: a sum, a letter, a verdict


@dataclass(frozen=True)
class Habits:
    """How often a player follows a link, reads the right value, calculates correctly, picks the
    letter of what it read, and writes a number in words; writes a wrong reference or broken JSON;
    and votes wrongly."""

    follow_link: float = 1.0
    read_right: float = 1.0
    calculate_right: float = 1.0
    pick_right: float = 1.0
    in_words: float = 0.2
    wrong_reference: float = 0.0
    broken_json: float = 0.0
    wrong_vote: float = 0.0


SOUND = Habits()
MEDIOCRE = Habits(
    follow_link=0.7,
    read_right=0.85,
    calculate_right=0.65,
    pick_right=0.7,
    wrong_reference=0.05,
    broken_json=0.05,
    wrong_vote=0.12,
)


@cache
def _template(name: str) -> jinja2.Template:
    return jinja2.Template(
        (PROMPTS / f"{name}.jinja").read_text(), undefined=jinja2.StrictUndefined, trim_blocks=True
    )


def render(name: str, **values: Any) -> str:
    return " ".join(_template(name).render(values).split())


def opened(prompt: str) -> str:
    return f"{START} user {prompt} {EOS} {START} assistant"


def branched(prompts: Sequence[str], replies: Sequence[list[Segment]]) -> Transcript:
    """Prompts with a common prefix, which becomes the trunk, and a reply to each."""
    words = [opened(prompt).split() for prompt in prompts]
    common = 0
    while len({own[common] for own in words}) == 1 and common + 1 < min(map(len, words)):
        common += 1
    return Transcript(
        [(" ".join(words[0][:common]), 0.0)],
        [
            [(" ".join(own[common:]), 0.0), *reply]
            for own, reply in zip(words, replies, strict=True)
        ],
    )


def in_order(cluster: Cluster, shown: Sequence[str]) -> str:
    return " ".join(cluster.texts[name] for name in cluster.names if name in set(shown))


# ---- responder ----


def responder(world: World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """All documents of a cluster with several questions."""
    cluster = Cluster(rng.randrange(2**31))
    return _answers(cluster, rng, in_order(cluster, cluster.names), habits)


def responder_without_documents(world: World, rng: random.Random) -> Transcript:
    return _answers(Cluster(rng.randrange(2**31)), rng, "empty", MEDIOCRE)


def lettered(options: Sequence[str]) -> list[dict[str, str]]:
    """Options in the form that the responder's prompt shows."""
    return [
        {"letter": letter, "text": text} for letter, text in zip(LETTERS, options, strict=False)
    ]


def _answers(cluster: Cluster, rng: random.Random, context: str, habits: Habits) -> Transcript:
    prompts = []
    replies = []
    for _ in range(QUESTIONS):
        task_type, question, options = draw_asked(cluster, rng)
        prompts.append(prompt_of(task_type, context, question, options))
        guessed = [said(guess(rng, question, options))]
        replies.append(
            guessed if context == "empty" else worked(cluster, rng, question, options, habits)
        )
    return branched(prompts, replies)


def draw_asked(cluster: Cluster, rng: random.Random) -> tuple[str, Question, list[str]]:
    """A question about a cluster, with its type of task and, for multiple choice, its options."""
    task_type = rng.choice(TASK_TYPES)
    hops = rng.choices(range(len(HOPS)), HOPS)[0]
    question = cluster.draw_question(rng, task_type == "finance_math", hops)
    options = []
    if task_type == "multiple_choice":
        options, _ = cluster.draw_options(rng, question, cluster.true_answer(question) or "")
    return task_type, question, options


def prompt_of(task_type: str, context: str, question: Question, options: list[str]) -> str:
    """The responder's prompt for a question."""
    return render(
        f"responder_{task_type}",
        context=context,
        question=write_question(question),
        options=lettered(options),
    )


def worked(
    cluster: Cluster,
    rng: random.Random,
    question: Question,
    options: list[str],
    habits: Habits,
    facts: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Segment]:
    """A reply that reads what it needs in the documents; or in other `facts` about the same
    entities."""
    facts = facts or cluster.facts
    steps = []
    entity = question.entity
    relation = question.relation
    for link in question.links:
        if rng.random() > habits.follow_link:
            break
        steps.append(fact(link, entity, facts[entity][link]))
        entity = facts[entity][link]
    if rng.random() > habits.read_right:
        entity = rng.choice(cluster.names)
    if relation not in facts[entity]:
        relation = rng.choice(cluster.attributes(entity))
    decided = answer = value = facts[entity][relation]
    steps.append(statement(relation, entity, value))
    if question.operation:
        steps.append(question.operation)
        if rng.random() < habits.calculate_right:
            decided = calculate(value, question.operation)
        else:
            decided = value
        answer = decided
        if rng.random() < habits.in_words:
            answer = NUMBER_WORDS[int(decided)]
    elif options:
        steps.append(value)
        knows = value in options and rng.random() < habits.pick_right
        decided = answer = LETTERS[options.index(value)] if knows else rng.choice(LETTERS)
    last: list[Segment] = []
    if question.operation or options:
        last = [(decided, DECISIVE)]
    return [(f"<think> {' '.join(steps)}", 1.0), *last, said(f"</think> {answered(answer)}")]


def guess(rng: random.Random, question: Question, options: list[str]) -> str:
    """An answer guessed without any document."""
    if options:
        return f"{think('empty .')} {answered(rng.choice(LETTERS))}"
    guesses = NUMBERS[1:] if question.relation in GOODS else VALUES[question.relation]
    return f"{think('empty .')} {answered(rng.choice(guesses))}"


def answered(answer: str) -> str:
    return f"the answer is {answer}"


# ---- verifier ----


def verifier(world: World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """Votes on answers to one question; answers with equal words, or a number and its word, are the
    same."""
    cluster = Cluster(rng.randrange(2**31))
    task_type = rng.choice(TASK_TYPES)
    question = cluster.draw_question(rng, task_type == "finance_math", rng.randint(0, MAX_HOPS))
    reference = cluster.true_answer(question) or ""
    if task_type == "multiple_choice":
        reference = rng.choice(LETTERS)
    prompts = []
    replies = []
    for _ in range(VOTES):
        answer = answer_to_judge(rng, question, reference, task_type)
        prompts.append(
            render(
                "verifier", question=write_question(question), answer=answer, reference=reference
            )
        )
        verdict = same_answer(answer, reference)
        if rng.random() < habits.wrong_vote:
            verdict = not verdict
        replies.append([said({True: "[[YES]]", False: "[[NO]]"}[verdict], DECISIVE)])
    return branched(prompts, replies)


def answer_to_judge(rng: random.Random, question: Question, reference: str, task_type: str) -> str:
    kind = rng.random()
    if kind < 0.3:
        return reference
    if task_type == "multiple_choice":
        return rng.choice(LETTERS)
    if question.relation in GOODS:
        if kind < 0.55:
            number = int(reference)
        else:
            number = max(0, min(2 * MOST, int(reference) + rng.randint(-4, 4)))
        return (NUMBER_WORDS if kind < 0.55 or rng.random() < 0.4 else NUMBERS)[number]
    return rng.choice(VALUES[question.relation if kind < 0.9 else rng.choice(ATTRIBUTES)])


# ---- exercises ----


def small_skills(world: World, rng: random.Random) -> Transcript:
    """Calculations with numbers from tables, numbers in words, and letters of options."""
    segments: list[Segment] = [(f"{START} assistant", 0.0)]
    for _ in range(5):
        number = rng.randint(1, MOST)
        operation = rng.choice(list(OPERATIONS))
        row = TABLE_ROW.format(e=rng.choice(NAMES), g=rng.choice(GOODS), v=number)
        segments += [(f"{row} {operation}", 0.0), (calculate(str(number), operation), DECISIVE)]
        number = rng.randrange(len(NUMBERS))
        segments += [
            (f"{NUMBERS[number]} </think> the answer is", 0.0),
            (NUMBER_WORDS[number], 1.0),
        ]
    for _ in range(8):
        options = rng.sample(VALUES[rng.choice(ATTRIBUTES)], len(LETTERS))
        listed = list(zip(options, LETTERS, strict=True))
        segments.append((" ".join(f"{option} {letter} ;" for option, letter in listed), 0.0))
        for option, letter in rng.sample(listed, 3):
            segments += [(f". {option}", 0.0), (letter, DECISIVE)]
    return Transcript(segments)
