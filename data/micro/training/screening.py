"""Training text of the micro model as judge of tasks: gates, and rubrics for tasks that pass."""

import random

from data.micro.training.transcripts import (
    GENERIC_SHARE,
    SEARCH_TURNS,
    Transcript,
    branched,
    said,
    think,
    user,
    with_bad_attribute,
)
from flows.worlds.encyclopaedia import (
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

TASKS_PER_DOCUMENT = 3


def entity_gate(world: World, rng: random.Random) -> Transcript:
    kind = rng.random()
    if kind < 0.35:
        task = Task("", rng.choice(world.names), generic=rng.choice(list(GENERIC_SENTENCES)))
        thought = f"{task.generic} {task.entity}"
        score = 0
    else:
        task, _ = world.draw_task(rng, rng.choices(range(MAX_HOPS + 1), (0.5, 0.25, 0.15, 0.1))[0])
        thought = task.entity
        score = 1
    return Transcript(
        [
            user("gate_entity", task=write_task(task)),
            said(f"{think(thought)} <score> {score} </score>"),
        ]
    )


def source_gate(world: World, rng: random.Random) -> Transcript:
    """Judge whether the document states the facts that the task needs from it; a missing fact gets
    the value "no".

    The needed facts are the first link of the task's path or, without a path, all attributes asked
    for; a generic task needs none.
    """
    document = rng.choice(world.names)
    exchanges = []
    for _ in range(TASKS_PER_DOCUMENT):
        start = document if rng.random() < 0.85 else rng.choice(world.names)
        task = _task_to_gate(world, rng, start, document)
        if task.generic:
            thought = f"about {document} ."
            verdict = 1
        else:
            known = world.facts[start] if start == document else {}
            found = {r: known.get(r, "no") for r in task.path[:1] or task.attributes}
            thought = " ".join(fact(r, start, value) for r, value in found.items())
            verdict = int("no" not in found.values())
        exchanges.append((write_task(task), [said(f"{think(thought)} <score> {verdict} </score>")]))
    return branched("gate_source", "task", exchanges, document=world.texts[document])


def _task_to_gate(world: World, rng: random.Random, start: str, document: str) -> Task:
    kind = rng.random()
    task_type = rng.choice(list(TASK_SENTENCES))
    if kind < GENERIC_SHARE:
        return Task("", document, generic=rng.choice(list(GENERIC_SENTENCES)))
    path, chain = world.draw_path(
        rng, start, rng.choices(range(MAX_HOPS + 1), (0.55, 0.25, 0.12, 0.08))[0]
    )
    task = Task(task_type, start, tuple(path), tuple(world.draw_attributes(rng, chain[-1])))
    if not path:
        if kind < 0.45:
            return with_bad_attribute(world, rng, task, start)
        return task
    absent = [link for link in LINKS if link not in world.facts[start]]
    if kind < 0.3:
        return Task(task_type, start, (rng.choice(absent), *path[1:]), task.attributes)
    return task


def rubric_writer(world: World, rng: random.Random) -> Transcript:
    """Write criteria for tasks from the source document and the documents that the Challenger
    retrieved.

    The thought reads the requested facts off the documents. A missing fact gets the value "no" and
    no criterion; facts at the end of a missing link get no criterion either.
    """
    turns = rng.choices((0, *SEARCH_TURNS), (1, 4, 4, 3))[0]
    path, chain = world.draw_path(rng, rng.choice(world.names), turns)
    task_type = rng.choice(list(TASK_SENTENCES))
    exchanges = []
    for _ in range(TASKS_PER_DOCUMENT):
        hops = rng.randint(0, turns)
        task = Task(
            task_type, chain[0], tuple(path[:hops]), tuple(world.draw_attributes(rng, chain[hops]))
        )
        if (kind := rng.random()) < GENERIC_SHARE:
            task = Task("", chain[0], generic=rng.choice(list(GENERIC_SENTENCES)))
        elif kind < 0.24:
            task = with_bad_attribute(world, rng, task, chain[hops])
        elif kind < 0.32 and hops:
            task = with_bad_link(world, rng, task, chain)
        exchanges.append((write_task(task), [said(_rubric_reply(world, rng, task))]))
    return branched(
        "rubrics", "task", exchanges, task_type=task_type, documents=_evidence(world, rng, chain)
    )


def with_bad_link(world: World, rng: random.Random, task: Task, chain: list[str]) -> Task:
    """The task with a bad path: an entity on it does not have the next link."""
    at = rng.randrange(len(task.path))
    path = list(task.path)
    path[at] = rng.choice([link for link in LINKS if link not in world.facts[chain[at]]])
    return Task(task.task_type, task.entity, tuple(path), task.attributes)


def _rubric_reply(world: World, rng: random.Random, task: Task) -> str:
    entity = task.entity
    steps = []
    found = []
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
    """The source document, then the retrieved documents, sometimes with an unrelated one."""
    retrieved = chain[1:]
    if rng.random() < 0.1 and len(retrieved) < MAX_HOPS:
        retrieved = [*retrieved, rng.choice(world.names)]
        rng.shuffle(retrieved)
    names = [chain[0], *retrieved]
    return " ".join(
        world.texts[name] for name in (dict.fromkeys(names) if rng.random() < 0.8 else names)
    )


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
