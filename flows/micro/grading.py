"""Answers and criteria to learn grading from: real ones, made-up ones, and criteria that are nearly met.

The base model learns the bare verdict; the dedicated grader first quotes the answer's best-fitting statement and says whether
entity and value are the criterion's (measured: a bare verdict is right on 88-92 % of real answers, the quoting one on 99 %).
"""

import random
import re
from collections.abc import Callable

from flows.micro.tokenizer import EOS, vocabulary
from flows.micro.transcripts import Segment, Transcript, branched, solver_facts
from flows.micro.world import ATTRIBUTES, LINKS, NAMES, VALUES, World, criterion, fact, states

Statement = tuple[str, str, str]  # relation, entity, value
RELATIONS = (*LINKS, *ATTRIBUTES)
CRITERIA_PER_ANSWER = 8
_STATEMENT = re.compile(r"\bthe (\w+) of (\w+) is (\w+) \.")
_ORDINARY_WORDS = vocabulary()[4:]


def draw_value(rng: random.Random, relation: str) -> str:
    return rng.choice(NAMES if relation in LINKS else VALUES[relation])


def statements(answer: str) -> list[Statement]:
    """All facts an answer states, word for word, in order."""
    return [(r, e, v) for r, e, v in _STATEMENT.findall(answer) if r in RELATIONS]


def scripted_answer(world: World, rng: random.Random) -> str:
    """An answer as the base Solver's script gives it, the page it stopped at included."""
    task, chain = world.draw_task(rng, rng.choice([0, 0, 1, 2]))
    reached = rng.randint(0, len(chain) - 1)
    return " ".join(solver_facts(world, rng, task, chain, reached))


def made_up_answer(rng: random.Random) -> str:
    """Facts about one to three entities, with repeats, re-used values and, in a quarter, damage."""
    entities, facts = rng.sample(NAMES, rng.choice([1, 1, 1, 2, 2, 3])), []
    for _ in range(rng.choice([1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7])):
        relation, entity = rng.choice(RELATIONS), rng.choice(entities)
        if facts and rng.random() < 0.15:
            relation = rng.choice(facts)[0]
        if any(f[:2] == (relation, entity) for f in facts) and rng.random() > 0.15:
            continue
        value, kind = draw_value(rng, relation), rng.random()
        if kind < 0.06:
            value = "unknown"
        elif kind < 0.12 and facts:
            value = rng.choice(facts)[2]
        facts.append((relation, entity, value))
    if rng.random() < 0.15:
        facts.append(rng.choice(facts))
    return damage(rng, " ".join(fact(*f) for f in facts))


def damage(rng: random.Random, answer: str) -> str:
    """The answer, in a quarter of cases truncated, with a word lost, replaced or stuttered, or not an answer at all."""
    words, kind = answer.split(), rng.random()
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


def near_criterion(rng: random.Random, stated: list[Statement], asked: list[Statement]) -> Statement:
    """A fact to look for: half stated or asked ones as they are, the rest off in value, entity or relation."""
    if asked and rng.random() < 0.5:
        relation, entity, value = rng.choice(asked)
    elif stated:
        relation, entity, value = rng.choice(stated)
    else:
        relation = rng.choice(RELATIONS)
        entity, value = rng.choice(NAMES), draw_value(rng, relation)
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
    elif 0.96 <= kind:
        entity = rng.choice(NAMES)
    return relation, entity, draw_value(rng, relation) if value == "unknown" else value


def direct_verdict(answer: str, sought: Statement) -> list[Segment]:
    verdict = int(states(answer, fact(*sought)))
    return [("<score>", 0.1), (str(verdict), 2.0), (f"</score> {EOS}", 0.1)]


def quoting_verdict(answer: str, sought: Statement) -> list[Segment]:
    """Quote the best-fitting statement (full match, else same relation and entity, else same relation, else "no"), then decide.

    Weights: the quoted entity and value 1, yes/no 0.99, the score 2, the relation 0.3, the rest 0.1.
    """
    relation, entity, value = sought
    stated = [s for s in statements(answer) if s[0] == relation]
    best = [s for s in stated if s == sought] or [s for s in stated if s[1] == entity] or stated
    _, quoted_entity, quoted_value = best[0] if best else (relation, "no", "no")
    verdict = int(states(answer, fact(*sought)))
    return [
        ("<think> the", 0.1), (relation, 0.3), ("of", 0.1), (quoted_entity, 1.0),
        ("yes" if quoted_entity == entity else "no", 0.99), ("is", 0.1), (quoted_value, 1.0),
        ("yes" if quoted_value == value else "no", 0.99), (". </think> <score>", 0.1), (str(verdict), 2.0),
        (f"</score> {EOS}", 0.1),
    ]  # fmt: skip


def grading(
    rng: random.Random,
    answer: str,
    asked: list[Statement],
    verdict: Callable[[str, Statement], list[Segment]],
    count: int = CRITERIA_PER_ANSWER,
) -> Transcript:
    """One answer, several criteria: each a branch that begins where the prompts of the checks begin to differ."""
    sought = [near_criterion(rng, statements(answer), asked) for _ in range(count)]
    exchanges = [(criterion(fact(*s)), verdict(answer, s)) for s in sought]
    return branched("grade", "criterion", exchanges, answer=answer)


def base_grading(world: World, rng: random.Random) -> Transcript:
    answer = scripted_answer(world, rng) if rng.random() < 0.6 else made_up_answer(rng)
    return grading(rng, answer, [], direct_verdict)
