"""Training text of the micro model about trails, role by role, in the formats of Search Self-Play's
micro prompts.

Every thought ends with what remains to be followed (for the Solver and the Checker) or with the
question so far (for the Proposer), so each turn has the same form as the one before it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from data.micro.training.tokenizer import EOS, START, WORDS
from data.micro.training.transcripts import Segment, Transcript, said, search, think
from flows.runtime.store_root import SOURCE
from flows.worlds import encyclopaedia
from flows.worlds.encyclopaedia import fact
from flows.worlds.trails import (
    MAX_HOPS,
    TIES,
    Question,
    World,
    open_world,
    trail_phrase,
    write_question,
)
from tasks.prompt import Template
from tasks.rollouts.dialogue import say

PROMPTS = SOURCE / "flows" / "ssp" / "prompts" / "micro"
_WORDS = ("proposer", "checker", "who", "is", "'s", "ask", "<question>", "</question>")
TRAIL_WORDS = tuple(dict.fromkeys([*WORDS, *_WORDS, *TIES]))
UNKNOWN = "unknown"
NUM_SEARCHES = MAX_HOPS + 1  # of a Proposer: one for the answer, then one per hop
SLIP = 0.02  # share of turns without a search or a final element, followed by an error message
FEWER_SEARCHES = 0.15  # share of conversations that may allow fewer searches than they need
MOST_OTHERS = 2  # maximum number of other trails whose documents the Checker also sees


@dataclass(frozen=True)
class Habits:
    """How far a model goes, and its mistakes.

    The Solver continues after hop n with probability `goes_on[n - 1]`; otherwise it answers with
    the person reached. The Proposer continues with probability `asks_on[n - 1]`; otherwise it asks.
    `wrong_tie` is the probability that a tie in a proposed question is drawn at random, `broken`
    the share of final elements that are not closed, and `impossible` the share of the Solver's
    questions that have no answer; the Checker gets twice that share.
    """

    goes_on: Sequence[float]
    asks_on: Sequence[float]
    wrong_tie: float
    broken: float
    impossible: float


# The further the Solver has got, the likelier it stops, so short questions do not teach it to
# answer long ones. Long questions are rare: the Proposer must learn to ask them.
MEDIOCRE = Habits(
    goes_on=(0.70, 0.55, 0.45, 0.40),
    asks_on=(0.40, 0.35, 0.30, 0.30),
    wrong_tie=0.08,
    broken=0.04,
    impossible=0.06,
)
SOUND = replace(
    MEDIOCRE, goes_on=(1.0,) * 4, asks_on=(0.8, 0.75, 0.7, 0.5), wrong_tie=0.0, broken=0.0
)


@cache
def _template(name: str) -> Template:
    return Template.load(PROMPTS, name)


def user(name: str, **values: Any) -> Segment:
    return _message(_template(name).render(**values))


def found(name: str, text: str) -> Segment:
    """The message after a search that found one document; `name` is the message's template."""
    results = say(_template("results").text, documents=[{"text": text}])
    return _message(say(_template(name).text, results=results))


def _message(content: str) -> Segment:
    return f"{START} user {content} {EOS} {START} assistant", 0.0


def world_like(world: encyclopaedia.World) -> World:
    """The world of trails with the seed and the size of the encyclopaedia that training drew."""
    return open_world(world.seed, len(world.names))


def proposer(
    drawn: encyclopaedia.World, rng: random.Random, habits: Habits = MEDIOCRE
) -> Transcript:
    """Work backwards from an answer, with a search for each person, and ask a question."""
    world = world_like(drawn)
    wanted = rng.randint(1, MAX_HOPS)
    hops = _reached(rng, wanted, habits.asks_on)
    backwards = world.draw_trail(rng, hops)
    num_searches = hops + 1 if rng.random() < FEWER_SEARCHES else NUM_SEARCHES
    segments = [user("proposer", hops=wanted, answer=backwards[0])]
    question = Question(backwards[0], ())
    thought = question.person
    for number, person in enumerate(backwards, 1):
        segments += _slip(rng, think(thought))
        segments.append(said(f"{think(thought)} {search(person)}"))
        name = "proposer_searched_out" if number == num_searches else "searched"
        segments.append(found(name, world.texts[person]))
        thought = trail_phrase(question.person, question.ties)
        if number <= hops:
            before = person
            person = backwards[number]
            tie = world.tie_between(before, person)
            stated = fact(tie, before, person)
            if rng.random() < habits.wrong_tie:
                tie = rng.choice(TIES)
            question = Question(person, (tie, *question.ties))
            thought = f"{stated} {trail_phrase(question.person, question.ties)}"
    asked = f"<question> {write_question(question)}"
    if rng.random() >= habits.broken:
        asked = f"{asked} </question>"
    return Transcript([*segments, said(f"{think(thought)} {asked}")])


def _reached(rng: random.Random, most: int, goes_on: Sequence[float]) -> int:
    """How many of `most` hops the model makes."""
    return next((n for n in range(1, most) if rng.random() > goes_on[n - 1]), most)


def _slip(rng: random.Random, malformed: str) -> list[Segment]:
    if rng.random() < SLIP:
        return [said(malformed, 0.0), user("format_error")]
    return []


def solver(drawn: encyclopaedia.World, rng: random.Random, habits: Habits = MEDIOCRE) -> Transcript:
    """Follow the trail of a question, with a search for each person, and answer, often too
    early."""
    world = world_like(drawn)
    question = _draw_question(world, rng, habits.impossible)
    reached = _reached(rng, question.hops, habits.goes_on)
    num_searches = rng.randint(1, MAX_HOPS) if rng.random() < FEWER_SEARCHES else MAX_HOPS
    steps = _steps(world, question)[: min(reached, num_searches)]
    segments = [user("solver", task=write_question(question))]
    thought = trail_phrase(question.person, question.ties)
    person = question.person
    for number, (stated, rest) in enumerate(steps, 1):
        segments += _slip(rng, think(thought))
        segments.append(said(f"{think(thought)} {search(person)}"))
        name = "solver_searched_out" if number == num_searches else "searched"
        segments.append(found(name, world.texts[person]))
        thought = " ".join([stated, trail_phrase(rest.person, rest.ties)])
        person = rest.person
    answer = f"<answer> {person}"
    if rng.random() >= habits.broken:
        answer = f"{answer} </answer>"
    return Transcript([*segments, said(f"{think(thought)} {answer}")])


def checker(
    drawn: encyclopaedia.World, rng: random.Random, habits: Habits = MEDIOCRE
) -> Transcript:
    """Answer a question from documents that include those of its trail."""
    world = world_like(drawn)
    hops = rng.randint(1, MAX_HOPS)
    trail = world.draw_trail(rng, hops)
    question = world.question_along(trail)
    if rng.random() < 2 * habits.impossible:
        question = _impossible(world, rng, question)
    names = trail
    for _ in range(rng.randint(0, MOST_OTHERS)):
        names = [*names, *world.draw_trail(rng, rng.randint(1, MAX_HOPS))]
    names = list(dict.fromkeys(names))
    rng.shuffle(names)
    documents = [{"text": world.texts[name]} for name in names]
    thoughts = [f"{trail_phrase(question.person, question.ties)} ."]
    answer = question.person
    for stated, rest in _steps(world, question):
        thoughts.append(f"{stated} {trail_phrase(rest.person, rest.ties)} .")
        answer = rest.person
    return Transcript(
        [
            user("checker", documents=documents, task=write_question(question)),
            said(f"{think(' '.join(thoughts))} <answer> {answer} </answer>"),
        ]
    )


def _draw_question(world: World, rng: random.Random, impossible: float) -> Question:
    question = world.question_along(world.draw_trail(rng, rng.randint(1, MAX_HOPS)))
    if rng.random() < impossible:
        return _impossible(world, rng, question)
    return question


def _impossible(world: World, rng: random.Random, question: Question) -> Question:
    """The question with one tie replaced by one that the person reached there does not have."""
    at = rng.randrange(question.hops)
    before = world.true_answer(Question(question.person, question.ties[:at])) or ""
    tie = rng.choice([tie for tie in TIES if tie not in world.ties[before]])
    return Question(question.person, (*question.ties[:at], tie, *question.ties[at + 1 :]))


def _steps(world: World, question: Question) -> list[tuple[str, Question]]:
    """What each hop finds: a fact, and what remains to be followed. If there is no such tie, the
    person is unknown and nothing remains."""
    steps = []
    rest = question
    while rest.ties:
        tie = rest.ties[0]
        other = world.ties[rest.person].get(tie, UNKNOWN)
        stated = fact(tie, rest.person, other)
        rest = Question(other, rest.ties[1:] if other != UNKNOWN else ())
        steps.append((stated, rest))
    return steps
