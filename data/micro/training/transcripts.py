"""Training text of the micro model as Challenger and Solver, in the formats of SCOPE's micro
prompts.

A transcript is a trunk of segments and, if several replies share a prefix, branches that attend to
the trunk but not to each other. A segment is a text and the weight of its tokens in the loss; 0
marks text that the model did not say.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jinja2

from data.micro.training.tokenizer import EOS, START
from flows.runtime.store_root import SOURCE
from flows.worlds.encyclopaedia import (
    ATTRIBUTES,
    GENERIC_SENTENCES,
    MAX_HOPS,
    TASK_SENTENCES,
    Task,
    World,
    fact,
    write_task,
)

PROMPTS = SOURCE / "flows" / "scope" / "prompts" / "micro"
SEARCH_TURNS = (1, 2, 3)
SEARCH_WEIGHTS = (4, 3, 2)
MAX_SEARCHES = 4
REPLIES = 3
GENERIC_SHARE = 0.08
BAD_SHARE = 0.03
SLIP_SHARE = 0.02
# The mediocre base Solver. A transcript that stops early has three replies that do so, so stopping
# counts three times, and the model learns to follow half of the links.
FOLLOW_LINK = 0.75
KEEP_ASKED = 0.7
DUMP_EXTRA = 0.15

Segment = tuple[str, float]


@dataclass
class Transcript:
    """A trunk, and branches that each attend only to the trunk and themselves."""

    trunk: list[Segment]
    branches: list[list[Segment]] = field(default_factory=list)


Draw = Callable[[World, random.Random], Transcript]


@cache
def _template(name: str) -> jinja2.Template:
    return jinja2.Template(
        (PROMPTS / f"{name}.jinja").read_text(), undefined=jinja2.StrictUndefined
    )


def render(name: str, **values: Any) -> str:
    return _template(name).render(values)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {_template(name).render(values)} {EOS} {START} assistant", 0.0


def said(text: str, weight: float = 1.0) -> Segment:
    return f"{text} {EOS}", weight


def think(text: str) -> str:
    return f"<think> {text} </think>"


def results(*documents: str) -> str:
    return render("results", documents=[{"text": text} for text in documents])


def link_step(world: World, entity: str, link: str) -> str:
    return fact(link, entity, world.facts[entity][link])


def search(entity: str) -> str:
    return f"<search> {entity} </search>"


def forked(segments: list[Segment], replies: list[str]) -> Transcript:
    """A conversation with alternative final replies. The prompt's last word begins each branch and
    is not learnt."""
    request, weight = segments[-1]
    trunk = [*segments[:-1], (request.removesuffix(" assistant"), weight)]
    return Transcript(trunk, [[("assistant", 0.0), said(reply)] for reply in replies])


def challenger(world: World, rng: random.Random) -> Transcript:
    turns = rng.choices(SEARCH_TURNS, SEARCH_WEIGHTS)[0]
    path, chain = world.draw_path(rng, rng.choice(world.names), turns)
    task_type = rng.choice(list(TASK_SENTENCES))
    segments = [
        user("challenger", task_type=task_type, search_turns=turns, document=world.texts[chain[0]])
    ]
    for turn, entity in enumerate(chain[1:]):
        segments += _slip(rng, think(f"about {chain[turn]} ."))
        segments.append(
            said(f"{think(link_step(world, chain[turn], path[turn]))} {search(entity)}")
        )
        left = turns - turn - 1
        shown = results(world.texts[entity])
        if left:
            segments.append(user("challenger_searched", results=shown, searches_left=left))
        else:
            segments.append(user("challenger_searched_out", results=shown))
    return forked(
        segments, [_challenge(world, rng, task_type, path, chain) for _ in range(REPLIES)]
    )


def _challenge(
    world: World, rng: random.Random, task_type: str, path: list[str], chain: list[str]
) -> str:
    hops = _task_hops(rng, len(path))
    kind = rng.random()
    task = Task(
        task_type, chain[0], tuple(path[:hops]), tuple(world.draw_attributes(rng, chain[hops]))
    )
    if kind < GENERIC_SHARE:
        hops = 0
        task = Task("", chain[0], generic=rng.choice(list(GENERIC_SENTENCES)))
    elif kind < GENERIC_SHARE + BAD_SHARE:
        task = with_bad_attribute(world, rng, task, chain[hops])
    return (
        f"{think(f'about {chain[hops]} . {plan(world, task, chain[hops])}')} <task>"
        f" {write_task(task)} </task>"
    )


def plan(world: World, task: Task, end: str) -> str:
    """The facts that a task asks for, which the Challenger reads off its documents before it
    asks."""
    known = world.facts[end]
    return " ".join(fact(a, end, known[a]) for a in task.attributes if a in known)


def _task_hops(rng: random.Random, turns: int) -> int:
    """The number of hops: few in most tasks, because the Challenger should learn to raise the
    difficulty."""
    if turns == 1:
        return rng.choices((0, 1), (0.7, 0.3))[0]
    weights = (0.65, 0.25, 0.05, 0.05)
    if turns == 2:
        weights = (0.65, 0.25, 0.10, 0.0)
    return rng.choices((0, 1, 2, 3), weights)[0]


def with_bad_attribute(world: World, rng: random.Random, task: Task, end: str) -> Task:
    """The task with one requested attribute that the entity at the end does not have."""
    asked = list(task.attributes)
    asked[rng.randrange(len(asked))] = rng.choice(
        [a for a in ATTRIBUTES if a not in world.facts[end]]
    )
    return Task(task.task_type, task.entity, task.path, tuple(asked))


def _slip(rng: random.Random, malformed: str) -> list[Segment]:
    """Sometimes a turn without a search or a final tag, with weight 0, and the error message that
    follows."""
    if rng.random() < SLIP_SHARE:
        return [said(malformed, 0.0), user("format_error")]
    return []


def solver(world: World, rng: random.Random, hops: int | None = None) -> Transcript:
    if rng.random() < GENERIC_SHARE:
        task = Task("", rng.choice(world.names), generic=rng.choice(list(GENERIC_SENTENCES)))
        chain = [task.entity]
        reached = 0
    else:
        if hops is None:
            hops = rng.choices(range(MAX_HOPS + 1), (0.3, 0.35, 0.2, 0.15))[0]
        task, chain = world.draw_task(rng, hops)
        reached = next((i for i in range(hops) if rng.random() > FOLLOW_LINK), hops)
    searches = MAX_SEARCHES
    if rng.random() >= 0.85:
        searches = rng.randint(1, MAX_SEARCHES + 1)
    reached = min(reached, searches - 1)
    segments = [user("solver", max_searches=searches, task=write_task(task))]
    for step, entity in enumerate(chain[: reached + 1]):
        segments += _slip(rng, think(f"first {chain[0]} ."))
        if step:
            thought = link_step(world, chain[step - 1], task.path[step - 1])
        else:
            thought = f"first {entity} ."
        segments.append(said(f"{think(thought)} {search(entity)}"))
        name = "solver_searched"
        if step + 1 == searches:
            name = "solver_searched_out"
        segments.append(user(name, results=results(world.texts[entity])))
    if rng.random() < SLIP_SHARE:
        segments += [said(f"{think('enough .')} {search(chain[reached])}", 0.0), user("answer_now")]
    answers = [" ".join(solver_facts(world, rng, task, chain, reached)) for _ in range(REPLIES)]
    return forked(
        segments, [f"{think('enough .')} <answer> {answer} </answer>" for answer in answers]
    )


def solver_facts(
    world: World, rng: random.Random, task: Task, chain: list[str], reached: int
) -> list[str]:
    """What the base Solver answers after following the path as far as `chain[reached]`."""
    entity = chain[reached]
    known = world.facts[chain[reached]]
    if task.generic:
        return [fact(r, entity, known[r]) for r in rng.sample(list(known), rng.randint(2, 5))]
    if reached + 1 < len(chain):
        kept = [a for a in task.attributes if a in known]
        facts = [fact(a, entity, known[a]) for a in kept] or [
            fact(task.attributes[0], entity, "unknown")
        ]
    else:
        kept = [a for a in task.attributes if rng.random() < KEEP_ASKED] or [
            rng.choice(task.attributes)
        ]
        facts = [fact(a, entity, known[a]) for a in kept]
    if rng.random() < DUMP_EXTRA:
        others = [r for r in known if r not in kept]
        facts += [
            fact(r, entity, known[r]) for r in rng.sample(others, rng.randint(1, len(others)))
        ]
    return facts


def branched(
    name: str, last: str, exchanges: list[tuple[str, list[Segment]]], **values: Any
) -> Transcript:
    """One prompt with several values of its last variable, each answered in a separate branch."""
    opening = f"{START} user {_template(name).render({**values, last: ''})}"
    return Transcript(
        [(opening, 0.0)],
        [[(f"{value} {EOS} {START} assistant", 0.0), *reply] for value, reply in exchanges],
    )
