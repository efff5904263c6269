"""A synthetic encyclopaedia with a vocabulary of about 700 words, and a grammar of tasks about it.

A document describes one entity by seven facts: five attributes and two links to other entities. A
task asks for three or four attributes of the entity at the end of a path of links. Everything can
be checked by rule: `oracle` gives the truth with which the verdicts of a run's models are compared.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LINKS = ("ruler", "founder", "teacher", "rival", "ally", "patron")
ATTRIBUTES = (
    "craft", "colour", "metal", "animal", "food", "season",
    "instrument", "river", "tree", "stone", "festival", "drink",
)  # fmt: skip
TASK_SENTENCES = {
    "long_form_qa": "what are the {a} of {p} ?",
    "summarisation": "write a summary of {p} covering the {a} .",
    "planning": "plan a visit to {p} using the {a} .",
    "writing": "write a story about {p} that mentions the {a} .",
}
GENERIC_SENTENCES = {
    "towns like": "tell about towns like {e} .",
    "places near": "write something about places near {e} .",
}
# The entity comes first so that a model, reading from left to right, knows whose relation it is.
FACT_SENTENCES = (
    "{e} has {r} {v} .",
    "{e} has {r} {v} .",  # repeated, so it is drawn twice as often as each of the others
    "{e} keeps {r} {v} .",
    "{e} claims {r} {v} .",
    "today {e} has {r} {v} .",
)
NUM_NAMES = 400
NUM_VALUES = 16
LINKS_PER_ENTITY = 2
ATTRIBUTES_PER_ENTITY = 5
ASKED_COUNTS = (3, 4)
ASKED_WEIGHTS = (0.6, 0.4)
MAX_HOPS = 3

_SYLLABLES = re.findall(
    r"\w+", "ba ke lo mi nu ra se to vi zu da fe go hi ju ka le mo ni pu qua ri sha te"
)


def _words(count: int, num_syllables: int, seed: int) -> list[str]:
    """Distinct made-up words; a seed gives the same words on every machine."""
    rng = random.Random(seed)
    words = {}
    while len(words) < count:
        words["".join(rng.choice(_SYLLABLES) for _ in range(num_syllables))] = None
    return list(words)


NAMES = tuple(word.capitalize() for word in _words(NUM_NAMES, 3, seed=1))
VALUES = {
    a: tuple(w + a[:2] for w in _words(NUM_VALUES, 2, seed=100 + i))
    for i, a in enumerate(ATTRIBUTES)
}
_NAME_SET = frozenset(NAMES)


def fact(relation: str, entity: str, value: str) -> str:
    """The only form in which answers and criteria state a fact.

    >>> fact("craft", "Baba", "lomicr")
    'Baba has craft lomicr .'
    """
    return f"{entity} has {relation} {value} ."


@dataclass(frozen=True)
class Task:
    """A parsed task. `path` holds the links in the order in which they are followed from `entity`.

    `generic` names a vague form ("towns like", "places near"); such a task has neither a path nor
    attributes.
    """

    task_type: str
    entity: str
    path: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    generic: str = ""


@dataclass(frozen=True)
class BenchTask:
    """A held-out task with the criteria that a perfect answer meets; `hops` is the length of its
    path."""

    task_id: str
    task_type: str
    text: str
    criteria: tuple[str, ...]
    hops: int


def path_phrase(entity: str, path: Sequence[str]) -> str:
    """
    >>> path_phrase("Baba", ["ruler", "ally"])
    'the ally of the ruler of Baba'
    """
    phrase = entity
    for link in path:
        phrase = f"the {link} of {phrase}"
    return phrase


def parse_path(phrase: str) -> tuple[str, tuple[str, ...]] | None:
    """The entity and the links, in order, of a phrase in the form of `path_phrase`; None for any
    other phrase or an unknown link.

    >>> parse_path("the ally of the ruler of Baba")
    ('Baba', ('ruler', 'ally'))
    """
    path = _PATH.fullmatch(phrase)
    if path is None:
        return None
    # every third word from the second on; the last link comes first
    links = tuple(path[1].split()[1::3][::-1])
    if set(links) - set(LINKS):
        return None
    return path[2], links


_PATH = re.compile(r"((?:the \w+ of )*)(\w+)")


def follow_links(
    facts: Mapping[str, Mapping[str, str]], entity: str, links: Sequence[str]
) -> list[str] | None:
    """The entities on a path from `entity`, including both ends; None if `facts` lacks a link.

    `links` names the link to follow from each, such as "ruler".
    """
    chain = [entity]
    for link in links:
        chain.append(facts.get(chain[-1], {}).get(link, ""))
    if all(name in facts for name in chain):
        return chain
    return None


def attribute_phrase(attributes: Sequence[str]) -> str:
    """
    >>> attribute_phrase(["craft", "food", "metal"])
    'craft , food and metal'
    """
    *head, last = attributes
    if not head:
        return last
    return f"{' , '.join(head)} and {last}"


def write_task(task: Task) -> str:
    """The sentence that states a task.

    >>> write_task(Task("summarisation", "Baba", ("ruler",), ("craft", "food")))
    'write a summary of the ruler of Baba covering the craft and food .'
    """
    if task.generic:
        return GENERIC_SENTENCES[task.generic].format(e=task.entity)
    attributes = attribute_phrase(task.attributes)
    subject = path_phrase(task.entity, task.path)
    return TASK_SENTENCES[task.task_type].format(a=attributes, p=subject)


def _pattern(sentence: str) -> re.Pattern[str]:
    pattern = re.escape(sentence)
    for field in "ape":
        pattern = pattern.replace(rf"\{{{field}\}}", f"(?P<{field}>.+?)")
    return re.compile(pattern)


_TASK_PATTERNS = {kind: _pattern(sentence) for kind, sentence in TASK_SENTENCES.items()}
_GENERIC_PATTERNS = {kind: _pattern(sentence) for kind, sentence in GENERIC_SENTENCES.items()}
_ATTRIBUTE_LIST = re.compile(r"\w+(?: , \w+)*(?: and \w+)?")


def parse_task(text: str) -> Task | None:
    """Parse a task; None if the text does not follow the grammar, or asks for an attribute
    twice."""
    text = " ".join(text.split())
    for kind, pattern in _GENERIC_PATTERNS.items():
        match = pattern.fullmatch(text)
        if match and match["e"] in _NAME_SET:
            return Task("", match["e"], generic=kind)
    for kind, pattern in _TASK_PATTERNS.items():
        match = pattern.fullmatch(text)
        if match:
            return _parse_specific(kind, subject=match["p"], attribute_list=match["a"])
    return None


def follows_grammar(text: str) -> bool:
    """Whether a text is a task: a quality gate by rule."""
    return parse_task(text) is not None


def _parse_specific(task_type: str, *, subject: str, attribute_list: str) -> Task | None:
    path = parse_path(subject)
    if path is None or not _ATTRIBUTE_LIST.fullmatch(attribute_list):
        return None
    entity, links = path
    attributes = tuple(word for word in attribute_list.split() if word not in (",", "and"))
    if entity not in _NAME_SET or set(attributes) - set(ATTRIBUTES):
        return None
    if len(set(attributes)) < len(attributes):
        return None
    return Task(task_type, entity, links, attributes)


class World:
    """Facts and documents of `num_entities` entities, drawn from a seed.

    `facts[entity]` maps each of its seven relations to a value, in the order of the entity's
    document; `texts[entity]` is the document.
    """

    def __init__(self, seed: int, num_entities: int = 60) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.names: list[str] = rng.sample(NAMES, num_entities)
        self.facts: dict[str, dict[str, str]] = {
            name: self._draw_facts(rng, name) for name in self.names
        }
        self.texts: dict[str, str] = {
            name: " ".join(
                rng.choice(FACT_SENTENCES).format(r=r, e=name, v=v) for r, v in facts.items()
            )
            for name, facts in self.facts.items()
        }

    def _draw_facts(self, rng: random.Random, name: str) -> dict[str, str]:
        others = [other for other in rng.sample(self.names, LINKS_PER_ENTITY + 1) if other != name]
        links = list(zip(rng.sample(LINKS, LINKS_PER_ENTITY), others, strict=False))
        attributes = [
            (a, rng.choice(VALUES[a])) for a in rng.sample(ATTRIBUTES, ATTRIBUTES_PER_ENTITY)
        ]
        return dict(attributes + links)

    def links(self, entity: str) -> list[str]:
        """The relations that link an entity to others."""
        return [r for r in self.facts[entity] if r in LINKS]

    def attributes(self, entity: str) -> list[str]:
        """The attributes that an entity has."""
        return [r for r in self.facts[entity] if r not in LINKS]

    def chain(self, entity: str, path: Sequence[str]) -> list[str] | None:
        """The entities on a path from `entity`, including both ends; None if this world lacks a
        link.

        `path` names the link to follow from each, such as "ruler".
        """
        return follow_links(self.facts, entity, path)

    def true_facts(self, task: Task | None) -> list[str] | None:
        """The facts that a perfect answer states, in the task's order; None if the task is generic
        or the world lacks a fact."""
        if task is None or task.generic:
            return None
        chain = self.chain(task.entity, task.path)
        if chain is None:
            return None
        entity = chain[-1]
        known = self.facts[entity]
        if not set(task.attributes) <= set(known):
            return None
        return [fact(attribute, entity, known[attribute]) for attribute in task.attributes]

    def draw_path(self, rng: random.Random, entity: str, hops: int) -> tuple[list[str], list[str]]:
        """A random walk of `hops` links from `entity`: the links, and the entities visited,
        including both ends."""
        path = []
        chain = [entity]
        for _ in range(hops):
            path.append(rng.choice(self.links(chain[-1])))
            chain.append(self.facts[chain[-1]][path[-1]])
        return path, chain

    def draw_attributes(self, rng: random.Random, entity: str) -> list[str]:
        """Three or four attributes to ask about, which are consecutive in the entity's document."""
        known = self.attributes(entity)
        count = rng.choices(ASKED_COUNTS, ASKED_WEIGHTS)[0]
        first = rng.randint(0, len(known) - count)
        return known[first : first + count]

    def draw_task(self, rng: random.Random, hops: int) -> tuple[Task, list[str]]:
        """A valid task of `hops` hops, and the entities on its path."""
        path, chain = self.draw_path(rng, rng.choice(self.names), hops)
        attributes = self.draw_attributes(rng, chain[-1])
        task_type = rng.choice(list(TASK_SENTENCES))
        return Task(task_type, chain[0], tuple(path), tuple(attributes)), chain


def criterion(stated: str) -> str:
    """
    >>> criterion("Baba has craft lomicr .")
    'Provides Baba has craft lomicr .'
    """
    return f"Provides {stated}"


_CRITERION = re.compile(r"Provides (\w+) has (\w+) (\w+) \.")


def states(answer: str, stated: str) -> bool:
    """Whether an answer contains the fact's sentence verbatim."""
    return f" {stated} " in f" {' '.join(answer.split())} "


def oracle(criterion_text: str, answer: str, world: World) -> bool | None:
    """Whether the criterion's fact is stated in the answer and true in the world; None if the
    criterion has another form."""
    match = _CRITERION.fullmatch(" ".join(criterion_text.split()))
    if match is None:
        return None
    entity, relation, value = match.groups()
    is_true = world.facts.get(entity, {}).get(relation) == value
    return is_true and states(answer, fact(relation, entity, value))


def corpus(seed: int, num_documents: int) -> list[dict[str, str]]:
    """Rows of the encyclopaedia: document_id, title (the entity's name), text."""
    world = World(seed, num_documents)
    return [
        {"document_id": f"micro-{seed}-{name}", "title": name, "text": world.texts[name]}
        for name in world.names
    ]


def held_out_tasks(seed: int, num_tasks: int, num_entities: int = 60) -> list[BenchTask]:
    """Tasks about `World(seed, num_entities)`, with equal numbers for 0, 1, 2 and 3 hops; types and
    lengths are random."""
    world = World(seed, num_entities)
    rng = random.Random(seed)
    tasks = []
    for index in range(num_tasks):
        hops = index % (MAX_HOPS + 1)
        task, _ = world.draw_task(rng, hops)
        criteria = tuple(criterion(stated) for stated in world.true_facts(task) or [])
        tasks.append(
            BenchTask(f"micro-{seed}-{index:04d}", task.task_type, write_task(task), criteria, hops)
        )
    return tasks
