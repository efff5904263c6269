"""Training data for graders: real and made-up answers, with criteria that they meet or nearly meet.

The base model learns only the bare verdict, which is right on about nine in ten real answers. The
dedicated grader first quotes the answer's best-fitting statement and says whether its entity and
value match the criterion's.
"""

import random
import re
from collections.abc import Callable

from data.micro.training.model import MicroModel
from data.micro.training.packing import ROW_TOKENS
from data.micro.training.sampler import answers
from data.micro.training.tokenizer import EOS, vocabulary
from data.micro.training.transcripts import Segment, Transcript, branched, solver_facts
from flows.worlds.encyclopaedia import (
    ATTRIBUTES,
    LINKS,
    MAX_HOPS,
    NAMES,
    VALUES,
    World,
    criterion,
    fact,
    states,
    write_task,
)

Statement = tuple[str, str, str]  # relation, entity, value
Answer = tuple[str, list[Statement]]  # an answer, and the facts that its task asks for
RELATIONS = (*LINKS, *ATTRIBUTES)
_STATEMENT = re.compile(r"\b(\w+) has (\w+) (\w+) \.")
_ORDINARY_WORDS = vocabulary()[4:]

WORD = {True: "yes", False: "no"}


def draw_value(rng: random.Random, relation: str) -> str:
    return rng.choice(NAMES if relation in LINKS else VALUES[relation])


def statements(answer: str) -> list[Statement]:
    """All facts that an answer states verbatim, in order."""
    return [(r, e, v) for e, r, v in _STATEMENT.findall(answer) if r in RELATIONS]


def scripted_answer(world: World, rng: random.Random) -> str:
    """An answer written by the base Solver's script, which may stop before the last link."""
    task, chain = world.draw_task(rng, rng.choice([0, 0, 1, 2]))
    reached = rng.randint(0, len(chain) - 1)
    return " ".join(solver_facts(world, rng, task, chain, reached))


def real_answers(solver: MicroModel, num: int, seed: int) -> list[Answer]:
    """Answers of a Solver at temperature 1 in new worlds, each with the facts that its task asks
    for."""
    rng = random.Random(seed)
    found = []
    while len(found) < num:
        world = World(rng.randrange(10**6, 2**31))
        tasks = [world.draw_task(rng, hops % (MAX_HOPS + 1))[0] for hops in range(256)]
        given = answers(
            solver, [write_task(task) for task in tasks], world, seed=rng.randrange(2**31)
        )
        for task, answer in zip(tasks, given, strict=True):
            if answer:
                found.append((answer, statements(" ".join(world.true_facts(task) or []))))
    return found[:num]


def made_up_answer(rng: random.Random) -> str:
    """Facts about one to three entities, with repetitions and reused values; a quarter of the
    answers is damaged."""
    entities = rng.sample(NAMES, rng.choice([1, 1, 1, 2, 2, 3]))
    facts = []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7])):
        relation = rng.choice(RELATIONS)
        entity = rng.choice(entities)
        if facts and rng.random() < 0.15:
            relation = rng.choice(facts)[0]
        if any(f[:2] == (relation, entity) for f in facts) and rng.random() > 0.15:
            continue
        value = draw_value(rng, relation)
        kind = rng.random()
        if kind < 0.06:
            value = "unknown"
        elif kind < 0.12 and facts:
            value = rng.choice(facts)[2]
        facts.append((relation, entity, value))
    if rng.random() < 0.15:
        facts.append(rng.choice(facts))
    return damage(rng, " ".join(fact(*f) for f in facts))


def damage(rng: random.Random, answer: str) -> str:
    """The answer, damaged in a quarter of cases: it is truncated, has a word dropped, replaced or
    repeated, or is no answer at all."""
    words = answer.split()
    kind = rng.random()
    at = rng.randrange(len(words))
    if kind < 0.08:
        words = words[: rng.randint(max(1, len(words) - 8), len(words))]
    elif kind < 0.13:
        words = words[:at] + words[at + 1 :]
    elif kind < 0.18:
        words[at] = rng.choice(_ORDINARY_WORDS)
    elif kind < 0.21:
        words[at:at] = [rng.choice(_ORDINARY_WORDS)] * rng.randint(1, 4)
    elif kind < 0.24:
        words = rng.choices(_ORDINARY_WORDS, k=rng.randint(1, 30))
    return " ".join(words)


def near_criterion(
    rng: random.Random, stated: list[Statement], asked: list[Statement]
) -> Statement:
    """A fact to look for: about half of the time one that was stated or asked for, else one with a
    different value, entity or relation."""
    if asked and rng.random() < 0.5:
        relation, entity, value = rng.choice(asked)
    elif stated:
        relation, entity, value = rng.choice(stated)
    else:
        relation = rng.choice(RELATIONS)
        entity = rng.choice(NAMES)
        value = draw_value(rng, relation)
    kind = rng.random()
    if 0.47 <= kind < 0.61:
        value = draw_value(rng, relation)
    elif 0.61 <= kind < 0.67 and stated:
        value = rng.choice(stated)[2]
    elif 0.67 <= kind < 0.75:
        entity = rng.choice(NAMES)
    elif 0.75 <= kind < 0.83 and stated:
        entity = rng.choice(stated)[1]
    elif 0.83 <= kind < 0.90:
        relation = rng.choice(RELATIONS)
    elif 0.90 <= kind < 0.96:
        relation = rng.choice(RELATIONS)
        value = draw_value(rng, relation)
    elif kind >= 0.96:
        entity = rng.choice(NAMES)
    return relation, entity, draw_value(rng, relation) if value == "unknown" else value


def direct_verdict(answer: str, sought: Statement) -> list[Segment]:
    verdict = int(states(answer, fact(*sought)))
    return [("<score>", 0.1), (str(verdict), 2.0), (f"</score> {EOS}", 0.1)]


def quoting_verdict(answer: str, sought: Statement) -> list[Segment]:
    """Quote the best-fitting statement, then decide.

    The best fit is a full match, then one with the same relation and entity, then one with the same
    relation; without any, the quote is "no".

    Weights: the quoted entity and value 1, yes/no 0.99, the score 2, the relation 0.3, the rest
    0.1.
    """
    relation, entity, value = sought
    stated = [s for s in statements(answer) if s[0] == relation]
    best = [s for s in stated if s == sought] or [s for s in stated if s[1] == entity] or stated
    _, quoted_entity, quoted_value = next(iter(best), (relation, "no", "no"))
    verdict = int(states(answer, fact(*sought)))
    return [
        ("<think>", 0.1), (relation, 0.3), ("of", 0.1), (quoted_entity, 1.0),
        (WORD[quoted_entity == entity], 0.99), (":", 0.1), (quoted_value, 1.0),
        (WORD[quoted_value == value], 0.99), (". </think> <score>", 0.1),
        (str(verdict), 2.0), (f"</score> {EOS}", 0.1),
    ]  # fmt: skip


def grading(
    rng: random.Random,
    answer: Answer,
    verdict: Callable[[str, Statement], list[Segment]],
    num_criteria: int,
) -> Transcript:
    """One answer with several criteria: one branch per criterion, starting where the prompts begin
    to differ."""
    text, asked = answer
    sought = [near_criterion(rng, statements(text), asked) for _ in range(num_criteria)]
    exchanges = [(criterion(fact(*s)), verdict(text, s)) for s in sought]
    return branched("grade", "criterion", exchanges, answer=text)


def base_grading(world: World, rng: random.Random) -> Transcript:
    text = scripted_answer(world, rng) if rng.random() < 0.6 else made_up_answer(rng)
    return grading(rng, (text, []), direct_verdict, num_criteria=8)


def grader_grading(answers_given: list[Answer]) -> Callable[[World, random.Random], Transcript]:
    """Draw transcripts for the grader, each filling a row: 40% on real answers, 40% on made-up
    ones, the rest on answers by the Solver's script."""

    def draw(world: World, rng: random.Random) -> Transcript:
        kind = rng.random()
        made_up = (made_up_answer(rng) if kind < 0.8 else scripted_answer(world, rng), [])
        answer = rng.choice(answers_given) if kind < 0.4 else made_up
        return grading(
            rng,
            answer,
            quoting_verdict,
            num_criteria=(ROW_TOKENS - len(answer[0].split()) - 20) // 30,
        )

    return draw
