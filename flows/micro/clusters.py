"""Clusters of linked documents with numbers in small tables, and the questions that they can be asked.

A cluster is six entities of the micro-world that know each other: every document gives two links to others of the
cluster, two attributes, and a table of two goods and how much the entity has of each. Everything asked here can be
checked by rule: `true_answer` is the truth that a run's references and verdicts are compared with.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from flows.micro.world import ATTRIBUTES, LINKS, NAMES, VALUES, fact, path_phrase

GOODS = ("gold", "salt", "silk", "wine", "iron", "wool")
MOST = 10  # of a good; a sum of two is at most twice that
NUMBERS = tuple(str(n) for n in range(2 * MOST + 1))
_TO_TWENTY = """
    zero one two three four five six seven eight nine ten
    eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty
"""
NUMBER_WORDS = tuple(_TO_TWENTY.split())
SIZE, LINKS_PER_ENTITY, ATTRIBUTES_PER_ENTITY, GOODS_PER_CLUSTER = 6, 2, 2, 2
LETTERS = ("A", "B", "C", "D")
MAX_HOPS = 2
TABLE_ROW = "{e} : {g} {v} ;"


@dataclass(frozen=True)
class Question:
    """What is asked: an attribute of the entity at the end of one path, or how much of a good two entities have.

    A path is an entity and the links that are followed from it.
    """

    relation: str
    paths: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def hops(self) -> int:
        """Links of the longest path."""
        return max(len(links) for _, links in self.paths)


def write_question(question: Question) -> str:
    """
    >>> write_question(Question("craft", (("Baba", ("ruler",)),)))
    'what is the craft of the ruler of Baba ?'
    >>> write_question(Question("gold", (("Baba", ()), ("Keke", ("ally",)))))
    'how many gold have Baba and the ally of Keke ?'
    """
    phrases = [path_phrase(entity, links) for entity, links in question.paths]
    if question.relation in GOODS:
        return f"how many {question.relation} have {phrases[0]} and {phrases[1]} ?"
    return f"what is the {question.relation} of {phrases[0]} ?"


_PATH = re.compile(r"((?:the \w+ of )*)(\w+)")
_OF_ONE = re.compile(r"what is the (\w+) of (.+) \?")
_OF_TWO = re.compile(r"how many (\w+) have (.+) and (.+) \?")


def parse_question(text: str) -> Question | None:
    """The question a text states, or None when it is not of the grammar."""
    text = " ".join(text.split())
    if (found := _OF_TWO.fullmatch(text)) and found[1] in GOODS:
        paths = [_parse_path(found[2]), _parse_path(found[3])]
    elif (found := _OF_ONE.fullmatch(text)) and found[1] in ATTRIBUTES:
        paths = [_parse_path(found[2])]
    else:
        return None
    known = tuple(path for path in paths if path is not None)
    return Question(found[1], known) if len(known) == len(paths) else None


def _parse_path(phrase: str) -> tuple[str, tuple[str, ...]] | None:
    found = _PATH.fullmatch(phrase)
    if found is None:
        return None
    links = tuple(found[1].split()[1::3][::-1])
    return None if set(links) - set(LINKS) or found[2] in ("the", "of") else (found[2], links)


class Cluster:
    """Facts and documents of six entities, drawn from a seed.

    `facts[entity]` maps its links, attributes and goods to values, in the order of its document; `texts[entity]` is the
    document.
    """

    def __init__(self, seed: int, size: int = SIZE) -> None:
        rng = random.Random(seed)
        self.seed = seed
        self.names: list[str] = rng.sample(NAMES, size)
        self.goods = tuple(rng.sample(GOODS, GOODS_PER_CLUSTER))
        self.facts: dict[str, dict[str, str]] = {name: self._draw_facts(rng, name) for name in self.names}
        self.texts: dict[str, str] = {name: self._write(name) for name in self.names}

    def _draw_facts(self, rng: random.Random, name: str) -> dict[str, str]:
        others = rng.sample([other for other in self.names if other != name], LINKS_PER_ENTITY)
        facts = list(zip(rng.sample(LINKS, LINKS_PER_ENTITY), others, strict=True))
        facts += [(a, rng.choice(VALUES[a])) for a in rng.sample(ATTRIBUTES, ATTRIBUTES_PER_ENTITY)]
        rng.shuffle(facts)
        return dict(facts + [(good, str(rng.randint(1, MOST))) for good in self.goods])

    def _write(self, name: str) -> str:
        facts = self.facts[name].items()
        sentences = [fact(r, name, v) for r, v in facts if r not in GOODS]
        return " ".join([*sentences, *(TABLE_ROW.format(e=name, g=r, v=v) for r, v in facts if r in GOODS)])

    def links(self, entity: str) -> list[str]:
        return [r for r in self.facts[entity] if r in LINKS]

    def attributes(self, entity: str) -> list[str]:
        return [r for r in self.facts[entity] if r in ATTRIBUTES]

    def chain(self, entity: str, links: Sequence[str]) -> list[str] | None:
        """The entities on a path, start and end included; None when a link does not exist here."""
        chain = [entity]
        for link in links:
            chain.append(self.facts.get(chain[-1], {}).get(link, ""))
        return chain if all(name in self.facts for name in chain) else None

    def true_answer(self, question: Question | None) -> str | None:
        """A value or a number; None when what is asked is not so in this cluster."""
        chains = [self.chain(*path) for path in question.paths] if question else [None]
        if question is None or any(chain is None for chain in chains):
            return None
        found = [self.facts[chain[-1]].get(question.relation) for chain in chains if chain]
        if None in found:
            return None
        return found[0] if question.relation not in GOODS else str(sum(int(value or 0) for value in found))

    def draw_question(
        self, rng: random.Random, finance: bool, hops: int, shown: Sequence[str] | None = None
    ) -> Question:
        """A question of so many hops, or fewer where the paths between the `shown` entities do not reach so far."""
        names = list(shown or self.names)
        if finance:
            first, second = (self._draw_path(rng, names, hops if at == 0 else rng.randint(0, hops)) for at in (0, 1))
            return Question(rng.choice(self.goods), (first[:2], second[:2]))
        entity, links, end = self._draw_path(rng, names, hops)
        return Question(rng.choice(self.attributes(end)), ((entity, links),))

    def _draw_path(self, rng: random.Random, names: Sequence[str], hops: int) -> tuple[str, tuple[str, ...], str]:
        """Entity, links, end: a walk that stays among `names`, of `hops` links where one of twenty has so many."""
        best: tuple[str, tuple[str, ...], str] | None = None
        for _ in range(20):
            entity = end = rng.choice(list(names))
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

    def draw_options(self, rng: random.Random, question: Question, answer: str) -> tuple[list[str], str]:
        """Four different values of the question's attribute, the answer among them, and the answer's letter."""
        others = rng.sample([v for v in VALUES[question.relation] if v != answer], len(LETTERS) - 1)
        options = rng.sample([answer, *others], len(LETTERS))
        return options, LETTERS[options.index(answer)]


def same_answer(answer: str, reference: str) -> bool:
    """Equal words, or a number and its word.

    >>> same_answer("twelve", "12"), same_answer("12", "21")
    (True, False)
    """
    said_number = NUMBERS[NUMBER_WORDS.index(answer)] if answer in NUMBER_WORDS else answer
    return said_number == reference


def cluster_rows(seed: int, num_clusters: int) -> list[tuple[int, dict[str, str]]]:
    """(cluster's number, row of a document) of a world of clusters; a row has document_id, title and text."""
    return [
        (number, {"document_id": f"cluster-{seed}-{number}-{name}", "title": name, "text": cluster.texts[name]})
        for number in range(num_clusters)
        for cluster in [world_cluster(seed, number)]
        for name in cluster.names
    ]


def world_cluster(seed: int, number: int) -> Cluster:
    """A cluster of the world of that seed. Seeds below 2**31 are those of clusters to learn to play from."""
    return Cluster(2**31 + 1000 * seed + number)
