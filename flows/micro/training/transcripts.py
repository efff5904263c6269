"""What the micro model is trained to say, role by role, in the formats of SCOPE's micro prompts.

A transcript is a trunk of segments and, where several replies share a text, branches that each follow the trunk alone.
A segment is a text and the weight of its tokens in the loss; 0 marks what the model did not say.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from flows.micro.training.tokenizer import EOS, START
from flows.micro.worlds.encyclopaedia import (
    ATTRIBUTES,
    GENERIC_SENTENCES,
    LINKS,
    MAX_HOPS,
    TASK_SENTENCES,
    Task,
    World,
    criterion,
    fact,
    write_task,
)

PROMPTS = Path(__file__).parents[2] / "scope" / "prompts" / "micro"
SEARCH_TURNS, SEARCH_WEIGHTS = (1, 2, 3), (4, 3, 2)
MAX_SEARCHES = 4
TASKS_PER_DOCUMENT = REPLIES = 3
GENERIC_SHARE, BAD_SHARE, SLIP_SHARE = 0.08, 0.03, 0.02
# The mediocre base Solver. Each transcript stops three times, in as many replies: it learns to follow half the links.
FOLLOW_LINK, KEEP_ASKED, DUMP_EXTRA = 0.75, 0.7, 0.15

Segment = tuple[str, float]


@dataclass
class Transcript:
    """Trunk, then branches that each see the trunk and themselves only."""

    trunk: list[Segment]
    branches: list[list[Segment]] = field(default_factory=list)


Draw = Callable[[World, random.Random], Transcript]


@cache
def _template(name: str) -> jinja2.Template:
    return jinja2.Template((PROMPTS / f"{name}.jinja").read_text(), undefined=jinja2.StrictUndefined)


def render(name: str, **values: Any) -> str:
    return _template(name).render(values)


def user(name: str, **values: Any) -> Segment:
    return f"{START} user {render(name, **values)} {EOS} {START} assistant", 0.0


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
    """A conversation and replies that might end it. A branch begins with the word that asks for it: unlearnt."""
    request, weight = segments[-1]
    trunk = [*segments[:-1], (request.removesuffix(" assistant"), weight)]
    return Transcript(trunk, [[("assistant", 0.0), said(reply)] for reply in replies])


def challenger(world: World, rng: random.Random) -> Transcript:
    turns = rng.choices(SEARCH_TURNS, SEARCH_WEIGHTS)[0]
    path, chain = world.draw_path(rng, rng.choice(world.names), turns)
    task_type = rng.choice(list(TASK_SENTENCES))
    segments = [user("challenger", task_type=task_type, search_turns=turns, document=world.texts[chain[0]])]
    for turn, entity in enumerate(chain[1:]):
        segments += _slip(rng, think(f"about {chain[turn]} ."))
        segments.append(said(f"{think(link_step(world, chain[turn], path[turn]))} {search(entity)}"))
        left = turns - turn - 1
        name = "challenger_searched" if left else "challenger_searched_out"
        more = {"searches_left": left} if left else {}
        segments.append(user(name, results=results(world.texts[entity]), **more))
    return forked(segments, [_challenge(world, rng, task_type, path, chain) for _ in range(REPLIES)])


def _challenge(world: World, rng: random.Random, task_type: str, path: list[str], chain: list[str]) -> str:
    hops, kind = _task_hops(rng, len(path)), rng.random()
    task = Task(task_type, chain[0], tuple(path[:hops]), tuple(world.draw_attributes(rng, chain[hops])))
    if kind < GENERIC_SHARE:
        hops, task = 0, Task("", chain[0], generic=rng.choice(list(GENERIC_SENTENCES)))
    elif kind < GENERIC_SHARE + BAD_SHARE:
        task = with_bad_attribute(world, rng, task, chain[hops])
    return f"{think(f'about {chain[hops]} . {plan(world, task, chain[hops])}')} <task> {write_task(task)} </task>"


def plan(world: World, task: Task, end: str) -> str:
    """The facts that a task asks for: the Challenger reads them off its documents before it asks."""
    known = world.facts[end]
    return " ".join(fact(a, end, known[a]) for a in task.attributes if a in known)


def _task_hops(rng: random.Random, turns: int) -> int:
    """Mostly plain questions: the difficulty is the Challenger's to raise."""
    if turns == 1:
        return rng.choices((0, 1), (0.7, 0.3))[0]
    return rng.choices((0, 1, 2, 3), (0.65, 0.25, 0.10, 0.0) if turns == 2 else (0.65, 0.25, 0.05, 0.05))[0]


def with_bad_attribute(world: World, rng: random.Random, task: Task, end: str) -> Task:
    """The task with one asked attribute that the end entity does not have."""
    asked = list(task.attributes)
    asked[rng.randrange(len(asked))] = rng.choice([a for a in ATTRIBUTES if a not in world.facts[end]])
    return Task(task.task_type, task.entity, task.path, tuple(asked))


def with_bad_link(world: World, rng: random.Random, task: Task, chain: list[str]) -> Task:
    """The task with one link of its path that the entity reached there does not have."""
    at, path = rng.randrange(len(task.path)), list(task.path)
    path[at] = rng.choice([link for link in LINKS if link not in world.facts[chain[at]]])
    return Task(task.task_type, task.entity, tuple(path), task.attributes)


def _slip(rng: random.Random, malformed: str) -> list[Segment]:
    """Now and then a turn without search and final tag, not to be learnt, and the message that it earns."""
    return [said(malformed, 0.0), user("format_error")] if rng.random() < SLIP_SHARE else []


def solver(world: World, rng: random.Random, hops: int | None = None) -> Transcript:
    if rng.random() < GENERIC_SHARE:
        task = Task("", rng.choice(world.names), generic=rng.choice(list(GENERIC_SENTENCES)))
        chain, reached = [task.entity], 0
    else:
        hops = rng.choices(range(MAX_HOPS + 1), (0.3, 0.35, 0.2, 0.15))[0] if hops is None else hops
        task, chain = world.draw_task(rng, hops)
        reached = next((i for i in range(hops) if rng.random() > FOLLOW_LINK), hops)
    searches = MAX_SEARCHES if rng.random() < 0.85 else rng.randint(1, MAX_SEARCHES + 1)
    reached = min(reached, searches - 1)
    segments = [user("solver", max_searches=searches, task=write_task(task))]
    for step, entity in enumerate(chain[: reached + 1]):
        segments += _slip(rng, think(f"first {chain[0]} ."))
        thought = link_step(world, chain[step - 1], task.path[step - 1]) if step else f"first {entity} ."
        segments.append(said(f"{think(thought)} {search(entity)}"))
        name = "solver_searched_out" if step + 1 == searches else "solver_searched"
        segments.append(user(name, results=results(world.texts[entity])))
    if rng.random() < SLIP_SHARE:
        segments += [said(f"{think('enough .')} {search(chain[reached])}", 0.0), user("answer_now")]
    answers = [" ".join(solver_facts(world, rng, task, chain, reached)) for _ in range(REPLIES)]
    return forked(segments, [f"{think('enough .')} <answer> {answer} </answer>" for answer in answers])


def solver_facts(world: World, rng: random.Random, task: Task, chain: list[str], reached: int) -> list[str]:
    """What the base Solver answers when it got to `chain[reached]`."""
    entity, known = chain[reached], world.facts[chain[reached]]
    if task.generic:
        return [fact(r, entity, known[r]) for r in rng.sample(list(known), rng.randint(2, 5))]
    if reached + 1 < len(chain):
        kept = [a for a in task.attributes if a in known]
        facts = [fact(a, entity, known[a]) for a in kept] or [fact(task.attributes[0], entity, "unknown")]
    else:
        kept = [a for a in task.attributes if rng.random() < KEEP_ASKED] or [rng.choice(task.attributes)]
        facts = [fact(a, entity, known[a]) for a in kept]
    if rng.random() < DUMP_EXTRA:
        others = [r for r in known if r not in kept]
        facts += [fact(r, entity, known[r]) for r in rng.sample(others, rng.randint(1, len(others)))]
    return facts


def entity_gate(world: World, rng: random.Random) -> Transcript:
    kind = rng.random()
    if kind < 0.35:
        task = Task("", rng.choice(world.names), generic=rng.choice(list(GENERIC_SENTENCES)))
        thought, score = f"{task.generic} {task.entity}", 0
    else:
        task, _ = world.draw_task(rng, rng.choices(range(MAX_HOPS + 1), (0.5, 0.25, 0.15, 0.1))[0])
        thought, score = task.entity, 1
    return Transcript([user("gate_entity", task=write_task(task)), said(f"{think(thought)} <score> {score} </score>")])


def branched(name: str, last: str, exchanges: list[tuple[str, list[Segment]]], **values: Any) -> Transcript:
    """One prompt asked about several values of its last variable, each answered in a branch of its own."""
    opening = f"{START} user {render(name, **values, **{last: ''})}"
    return Transcript(
        [(opening, 0.0)], [[(f"{value} {EOS} {START} assistant", 0.0), *reply] for value, reply in exchanges]
    )


def source_gate(world: World, rng: random.Random) -> Transcript:
    """Does the document hold what the task takes from it? What it does not hold "is no".

    That is the first link of the task's path, or all that it asks where there is no path; a generic task takes nothing.
    """
    document, exchanges = rng.choice(world.names), []
    for _ in range(TASKS_PER_DOCUMENT):
        start = document if rng.random() < 0.85 else rng.choice(world.names)
        task = _task_to_gate(world, rng, start, document)
        if task.generic:
            thought, verdict = f"about {document} .", 1
        else:
            known = world.facts[start] if start == document else {}
            found = {r: known.get(r, "no") for r in task.path[:1] or task.attributes}
            thought = " ".join(fact(r, start, value) for r, value in found.items())
            verdict = int("no" not in found.values())
        exchanges.append((write_task(task), [said(f"{think(thought)} <score> {verdict} </score>")]))
    return branched("gate_source", "task", exchanges, document=world.texts[document])


def _task_to_gate(world: World, rng: random.Random, start: str, document: str) -> Task:
    kind, task_type = rng.random(), rng.choice(list(TASK_SENTENCES))
    if kind < GENERIC_SHARE:
        return Task("", document, generic=rng.choice(list(GENERIC_SENTENCES)))
    path, chain = world.draw_path(rng, start, rng.choices(range(MAX_HOPS + 1), (0.55, 0.25, 0.12, 0.08))[0])
    task = Task(task_type, start, tuple(path), tuple(world.draw_attributes(rng, chain[-1])))
    if not path:
        return with_bad_attribute(world, rng, task, start) if kind < 0.45 else task
    absent = [link for link in LINKS if link not in world.facts[start]]
    return Task(task_type, start, (rng.choice(absent), *path[1:]), task.attributes) if kind < 0.3 else task


def rubric_writer(world: World, rng: random.Random) -> Transcript:
    """Criteria for tasks, from their source document and those that the Challenger retrieved.

    The thought reads off the documents what is asked. What they do not hold "is no" there and earns no criterion, nor
    does anything at the end of a link that they do not hold.
    """
    turns = rng.choices((0, *SEARCH_TURNS), (1, 4, 4, 3))[0]
    path, chain = world.draw_path(rng, rng.choice(world.names), turns)
    task_type, exchanges = rng.choice(list(TASK_SENTENCES)), []
    for _ in range(TASKS_PER_DOCUMENT):
        hops = rng.randint(0, turns)
        task = Task(task_type, chain[0], tuple(path[:hops]), tuple(world.draw_attributes(rng, chain[hops])))
        if (kind := rng.random()) < GENERIC_SHARE:
            task = Task("", chain[0], generic=rng.choice(list(GENERIC_SENTENCES)))
        elif kind < 0.24:
            task = with_bad_attribute(world, rng, task, chain[hops])
        elif kind < 0.32 and hops:
            task = with_bad_link(world, rng, task, chain)
        exchanges.append((write_task(task), [said(_rubric_reply(world, rng, task))]))
    return branched("rubrics", "task", exchanges, task_type=task_type, documents=_evidence(world, rng, chain))


def _rubric_reply(world: World, rng: random.Random, task: Task) -> str:
    entity, steps, found = task.entity, [], []
    for link in task.path:
        reached = world.facts[entity].get(link, "no")
        steps.append(fact(link, entity, reached))
        if reached == "no":
            break
        entity = reached
    else:
        known = world.facts[entity]
        asked = task.attributes or rng.sample(list(known), rng.randint(3, 5))
        found = [fact(r, entity, known.get(r, "no")) for r in asked]
    criteria = [stated for stated in found if not stated.endswith(" no .")]
    return f"{think(' '.join([*steps, *found]))} {write_rubrics(criteria)}"


def _evidence(world: World, rng: random.Random, chain: list[str]) -> str:
    """Source document first, then what was retrieved; sometimes a document about none of it."""
    retrieved = chain[1:]
    if rng.random() < 0.1 and len(retrieved) < MAX_HOPS:
        retrieved = [*retrieved, rng.choice(world.names)]
        rng.shuffle(retrieved)
    names = [chain[0], *retrieved]
    return " ".join(world.texts[name] for name in (dict.fromkeys(names) if rng.random() < 0.8 else names))


def write_rubrics(facts: list[str]) -> str:
    """
    >>> write_rubrics(["Baba has craft lomicr ."])
    '<rubrics> <rubric priority="critical"> Provides Baba has craft lomicr . </rubric> </rubrics>'
    """
    priorities = ["critical", "important", "important"] + ["bonus"] * len(facts)
    items = [
        f'<rubric priority="{priority}"> {criterion(stated)} </rubric>'
        for priority, stated in zip(priorities, facts, strict=False)
    ]
    return " ".join(["<rubrics>", *items, "</rubrics>"])
