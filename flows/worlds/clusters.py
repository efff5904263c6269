"""Clusters of linked documents with numbers in small tables, and questions about them.

A cluster consists of six entities of the micro-world. Each document describes one of them: two
links to other entities of the cluster, two attributes, and a table of two goods with their
quantities. Every question can be checked by rule: `true_answer` gives the truth with which a run's
references and verdicts are compared.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.worlds.encyclopaedia import (
    ATTRIBUTES,
    LINKS,
    NAMES,
    VALUES,
    fact,
    follow_links,
    parse_path,
    path_phrase,
)

GOODS = ("gold", "salt", "silk", "wine", "iron", "wool")
MOST = 10  # the largest quantity of a good
# (factor, summand); results are at most twice MOST
OPERATIONS = {"twice": (2, 0), "one-over": (1, 1), "ten-over": (1, 10)}
NUMBERS = tuple(str(n) for n in range(2 * MOST + 1))
_TO_TWENTY = """
    zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
"""
NUMBER_WORDS = tuple(_TO_TWENTY.split())
SIZE = 6
LINKS_PER_ENTITY = 2
ATTRIBUTES_PER_ENTITY = 2
GOODS_PER_CLUSTER = 2
LETTERS = ("A", "B", "C", "D")
MAX_HOPS = 2
TABLE_ROW = "{e} : {g} {v} ;"
FAMOUS = NAMES[:60]  # entities whose attributes a model can know by heart
CONFIRMED = 0.8  # share of their attributes for which documents to learn from state what is known


@dataclass(frozen=True)
class Question:
    """A question about the entity at the end of a path of links: for an attribute, or a number
    computed from a quantity."""

    relation: str
    entity: str
    links: tuple[str, ...] = ()
    operation: str = ""

    @property
    def hops(self) -> int:
        return len(self.links)


def write_question(question: Question) -> str:
    """
    >>> write_question(Question("craft", "Baba", ("ruler",)))
    'what is the craft of the ruler of Baba ?'
    >>> write_question(Question("gold", "Baba", operation="twice"))
    'how many gold is twice that of Baba ?'
    """
    phrase = path_phrase(question.entity, question.links)
    if question.relation in GOODS:
        return f"how many {question.relation} is {question.operation} that of {phrase} ?"
    return f"what is the {question.relation} of {phrase} ?"


_OF_ONE = re.compile(r"what is the (\w+) of (.+) \?")
_NUMBER_OF = re.compile(r"how many (\w+) is ([\w-]+) that of (.+) \?")


def parse_question(text: str) -> Question | None:
    """Parse a question; None if the text does not follow the grammar."""
    text = " ".join(text.split())
    number = _NUMBER_OF.fullmatch(text)
    if number and number[1] in GOODS and number[2] in OPERATIONS:
        return _about_path(number[1], number[3], operation=number[2])
    attribute = _OF_ONE.fullmatch(text)
    if attribute and attribute[1] in ATTRIBUTES:
        return _about_path(attribute[1], attribute[2])
    return None


def _about_path(relation: str, phrase: str, operation: str = "") -> Question | None:
    """The question about the end of a path, given as a phrase."""
    path = parse_path(phrase)
    if path is None:
        return None
    entity, links = path
    if entity in ("the", "of"):
        return None
    return Question(relation, entity, links, operation)


def calculate(value: str, operation: str) -> str:
    """
    >>> calculate("7", "twice"), calculate("7", "ten-over"), calculate("lomicr", "")
    ('14', '17', 'lomicr')
    """
    if not operation:
        return value
    factor, summand = OPERATIONS.get(operation, (1, 0))
    return str(factor * int(value) + summand)


def statement(relation: str, entity: str, value: str) -> str:
    """The sentence or table row in which a document states a fact.

    >>> statement("craft", "Baba", "lomicr"), statement("gold", "Baba", "7")
    ('Baba has craft lomicr .', 'Baba : gold 7 ;')
    """
    if relation in GOODS:
        return TABLE_ROW.format(e=entity, g=relation, v=value)
    return fact(relation, entity, value)


class Cluster:
    """Facts and documents of six entities, drawn from a seed.

    `facts[entity]` maps its links, attributes and goods to values, in the order of its document;
    `texts[entity]` is the document.
    """

    all_names: Sequence[str] = NAMES

    def __init__(self, seed: int, size: int = SIZE) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.names: list[str] = rng.sample(self.all_names, size)
        self.goods = tuple(rng.sample(GOODS, GOODS_PER_CLUSTER))
        self.facts: dict[str, dict[str, str]] = {
            name: self._draw_facts(rng, name) for name in self.names
        }
        self.texts: dict[str, str] = {name: self._write(name) for name in self.names}

    def _draw_facts(self, rng: random.Random, name: str) -> dict[str, str]:
        others = rng.sample([other for other in self.names if other != name], LINKS_PER_ENTITY)
        facts = list(zip(rng.sample(LINKS, LINKS_PER_ENTITY), others, strict=True))
        facts += [
            (a, self._draw_value(rng, name, a))
            for a in rng.sample(ATTRIBUTES, ATTRIBUTES_PER_ENTITY)
        ]
        rng.shuffle(facts)
        return dict(facts + [(good, str(rng.randint(1, MOST))) for good in self.goods])

    def _draw_value(self, rng: random.Random, name: str, attribute: str) -> str:
        return rng.choice(VALUES[attribute])

    def _write(self, name: str) -> str:
        facts = self.facts[name].items()
        sentences = [fact(r, name, v) for r, v in facts if r not in GOODS]
        table = [TABLE_ROW.format(e=name, g=r, v=v) for r, v in facts if r in GOODS]
        return " ".join([f"about {name} .", *sentences, *table])

    def links(self, entity: str) -> list[str]:
        """The relations that link an entity of the cluster to others, in the order of its
        document."""
        return [r for r in self.facts[entity] if r in LINKS]

    def attributes(self, entity: str) -> list[str]:
        """The attributes that an entity of the cluster has, in the order of its document."""
        return [r for r in self.facts[entity] if r in ATTRIBUTES]

    def chain(self, entity: str, links: Sequence[str]) -> list[str] | None:
        """The entities on a path, including both ends; None if the cluster lacks a link."""
        return follow_links(self.facts, entity, links)

    def true_answer(self, question: Question | None) -> str | None:
        """The answer, a value or a number; None if the cluster has no such fact."""
        if question is None:
            return None
        chain = self.chain(question.entity, question.links)
        if chain is None or question.relation not in self.facts[chain[-1]]:
            return None
        return calculate(self.facts[chain[-1]][question.relation], question.operation)

    def draw_question(
        self,
        rng: random.Random,
        finance: bool,
        hops: int,
        shown: Sequence[str] | None = None,
        start: str | None = None,
    ) -> Question:
        """A question with `hops` hops, or fewer if no path that long was found among the `shown`
        entities.

        Its path begins at `start`, by default at a random entity.
        """
        entity, links, end = self._draw_path(rng, list(shown or self.names), hops, start)
        if finance:
            return Question(rng.choice(self.goods), entity, links, rng.choice(list(OPERATIONS)))
        return Question(rng.choice(self.attributes(end)), entity, links)

    def _draw_path(
        self, rng: random.Random, names: Sequence[str], hops: int, start: str | None
    ) -> tuple[str, tuple[str, ...], str]:
        """The start, links and end of a random walk that stays among `names`: the first walk of
        twenty with `hops` links, else the longest."""
        best: tuple[str, tuple[str, ...], str] | None = None
        for _ in range(20):
            entity = end = start or rng.choice(list(names))
            links: list[str] = []
            while len(links) < hops:
                onward = [link for link in self.links(end) if self.facts[end][link] in names]
                if not onward:
                    break
                links.append(rng.choice(onward))
                end = self.facts[end][links[-1]]
            if best is None or len(links) > len(best[1]):
                best = entity, tuple(links), end
            if len(links) == hops:
                break
        assert best is not None
        return best

    def draw_options(
        self, rng: random.Random, question: Question, answer: str
    ) -> tuple[list[str], str]:
        """Four distinct values of the question's attribute, including the answer, and the letter of
        the answer."""
        others = rng.sample([v for v in VALUES[question.relation] if v != answer], len(LETTERS) - 1)
        options = rng.sample([answer, *others], len(LETTERS))
        return options, LETTERS[options.index(answer)]


def by_heart(entity: str, attribute: str) -> str:
    """The value of a famous entity's attribute that a model knows by heart, whatever its documents
    say."""
    return random.Random(f"{entity} {attribute}").choice(VALUES[attribute])


class FamousCluster(Cluster):
    """A cluster of famous entities. A share of their attributes, `confirmed`, has the value that is
    known by heart; all others have a different one."""

    all_names = FAMOUS

    def __init__(self, seed: int, confirmed: float) -> None:
        self.confirmed = confirmed
        super().__init__(seed)

    def _draw_value(self, rng: random.Random, name: str, attribute: str) -> str:
        known = by_heart(name, attribute)
        if rng.random() < self.confirmed:
            return known
        return rng.choice([value for value in VALUES[attribute] if value != known])

    def as_remembered(self) -> Mapping[str, Mapping[str, str]]:
        """The facts with the attributes that are known by heart, in place of those that the
        documents state."""
        return {
            name: {
                relation: by_heart(name, relation) if relation in ATTRIBUTES else value
                for relation, value in facts.items()
            }
            for name, facts in self.facts.items()
        }


def option_of(letter: str, options: Sequence[str]) -> str | None:
    """
    >>> option_of("B", ["nifese", "rahise"]), option_of("C", ["nifese", "rahise"])
    ('rahise', None)
    """
    option_by_letter: dict[str, str] = dict(zip(LETTERS, options, strict=False))
    return option_by_letter.get(letter.strip())


def same_answer(answer: str, reference: str) -> bool:
    """Whether two answers have equal words, or are a number and its word.

    >>> same_answer("twelve", "12"), same_answer("12", "21")
    (True, False)
    """
    if answer in NUMBER_WORDS:
        answer = NUMBERS[NUMBER_WORDS.index(answer)]
    return answer == reference


def cluster_rows(
    seed: int, num_clusters: int, confirmed: float | None = None
) -> list[tuple[int, dict[str, str]]]:
    """(number of the cluster, row) for every document of a world of clusters; a row has
    document_id, title and text. `confirmed` is that of `world_cluster`."""
    rows = list[tuple[int, dict[str, str]]]()
    for number in range(num_clusters):
        cluster = world_cluster(seed, number, confirmed)
        for name in cluster.names:
            row = {
                "document_id": f"cluster-{seed}-{number}-{name}",
                "title": name,
                "text": cluster.texts[name],
            }
            rows.append((number, row))
    return rows


def world_cluster(seed: int, number: int, confirmed: float | None = None) -> Cluster:
    """A cluster of the world with this seed; of famous entities, if a share `confirmed` of their
    attributes is what a model knows by heart. Seeds below 2**31 are reserved for training the micro
    models."""
    seed = 2**31 + 1000 * seed + number
    if confirmed is None:
        return Cluster(seed)
    return FamousCluster(seed, confirmed)
