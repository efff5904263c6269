"""Training text that precedes the roles: exercises in copying, lookup and following links."""

import random

from data.micro.training.tokenizer import EOS, START
from data.micro.training.transcripts import Segment, Transcript, plan, search
from flows.worlds.encyclopaedia import (
    ATTRIBUTES,
    FACT_SENTENCES,
    LINKS,
    MAX_HOPS,
    TASK_SENTENCES,
    VALUES,
    Task,
    World,
    write_task,
)


def copy_drill(world: World, rng: random.Random) -> Transcript:
    """Random names and values, repeated; trains heads to find a word's last occurrence and copy
    what followed it (induction heads)."""
    words = rng.sample(
        [*world.names, *(v for facts in world.facts.values() for v in facts.values())],
        rng.randint(8, 40),
    )
    line = " ".join(words)
    return Transcript([(line, 0.0)] + [(line, 1.0)] * max(1, 80 // len(words)))


def lookup_drill(world: World, rng: random.Random) -> Transcript:
    """Facts read off documents, in every form in which roles state facts; entity and relation
    precede the value."""
    names = rng.sample(world.names, rng.choice([1, 1, 2, 3, 4]))
    segments = [
        (
            (
                f"{START} user document : {' '.join(world.texts[n] for n in names)} {EOS} {START}"
                " assistant"
            ),
            0.0,
        )
    ]
    facts = [(r, name, v) for name in names for r, v in world.facts[name].items()]
    facts += [absent for _ in range(len(facts) // 2) if (absent := _absent_fact(world, rng, names))]
    rng.shuffle(facts)
    for relation, name, value in facts[:16]:
        segments += [
            (rng.choice(["", "", "Provides"]), 0.0),
            (name, 1.0 if len(names) == 1 else 0.0),
        ]
        segments += [("has", 0.1), (relation, 0.0), (value, 1.0), (".", 0.1)]
        if relation in LINKS and value != "no" and rng.random() < 0.8:
            segments.append((f"</think> {search(value)}", 1.0))
    return Transcript(segments)


def _absent_fact(world: World, rng: random.Random, names: list[str]) -> tuple[str, str, str] | None:
    """A fact that the documents of `names` lack, so its value is "no"."""
    relation = rng.choice([*LINKS, *ATTRIBUTES])
    name = rng.choice([*names, rng.choice(world.names)])
    if name in names and relation in world.facts[name]:
        return None
    return (relation, name, "no")


def chain_drill(world: World, rng: random.Random) -> Transcript:
    """Paths followed across several documents, and facts about the entity at their end."""
    path, chain = world.draw_path(rng, rng.choice(world.names), rng.randint(1, MAX_HOPS))
    names = list(dict.fromkeys(chain))
    rng.shuffle(names)
    segments = [
        (
            (
                f"{START} user document : {' '.join(world.texts[n] for n in names)} {EOS} {START}"
                " assistant"
            ),
            0.0,
        )
    ]
    for _ in range(3):
        start = rng.randrange(len(path))
        stop = rng.randint(start + 1, len(path))
        for i in range(start, stop):
            segments += [
                (f"{chain[i]} has {path[i]}", 1.0 if i > start else 0.0),
                (f"{chain[i + 1]} .", 1.0),
            ]
        end = chain[stop]
        for attribute in rng.sample(world.attributes(end), 2):
            segments += [(f"{end} has {attribute}", 0.0), (f"{world.facts[end][attribute]} .", 1.0)]
    return Transcript(segments)


def confusable_drill(world: World, rng: random.Random) -> Transcript:
    """The same few relations for several entities, so that only relation and entity together
    determine the value."""
    names = rng.sample(world.names, rng.randint(2, 6))
    relations = rng.sample([*LINKS, *ATTRIBUTES], rng.randint(1, 3))
    facts = [
        (r, n, rng.choice(world.names if r in LINKS else VALUES[r]))
        for n in names
        for r in relations
    ]
    if rng.random() < 0.5:
        rng.shuffle(facts)
    text = " ".join(rng.choice(FACT_SENTENCES).format(r=r, e=e, v=v) for r, e, v in facts)
    segments: list[Segment] = [(f"{START} user document : {text} {EOS} {START} assistant", 0.0)]
    for relation, name, value in rng.sample(facts, len(facts)):
        segments += [(f"{name} has {relation}", 0.0), (value, 1.0), (".", 0.1)]
    return Transcript(segments)


def listing_drill(world: World, rng: random.Random) -> Transcript:
    """Tasks about entities in several documents; each asks for attributes in its document, in the
    document's order."""
    path, chain = world.draw_path(rng, rng.choice(world.names), rng.randint(0, MAX_HOPS))
    names = list(dict.fromkeys(chain))
    rng.shuffle(names)
    texts = " ".join(world.texts[name] for name in names)
    segments: list[Segment] = [(f"{START} user document : {texts} {EOS} {START} assistant", 0.0)]
    for _ in range(4):
        hops = rng.randint(0, len(path))
        asked = tuple(world.draw_attributes(rng, chain[hops]))
        task = Task(rng.choice(list(TASK_SENTENCES)), chain[0], tuple(path[:hops]), asked)
        segments += [(f"<think> about {chain[hops]} .", 0.0)]
        segments += [
            (f"{plan(world, task, chain[hops])} </think> <task> {write_task(task)} </task>", 1.0)
        ]
    return Transcript(segments)
