"""People who know each other, and questions that follow a trail from one to the next.

A document is about one person. It names four others and their ties to that person. Ties are mutual,
like friendship, so a trail can be followed from either end: the Proposer starts at the answer and
works backwards to a question, and the Solver starts at the question and works forwards. Each hop
takes one search. `World.true_answer` gives the truth, with which a run's references and answers are
compared.
"""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from flows.worlds.encyclopaedia import FACT_SENTENCES, NAMES

# what two people are to each other
TIES = ("rival", "ally", "friend", "neighbour", "partner", "cousin", "colleague", "twin")
NUM_TIES = 4  # ties per person
NUM_RINGS = NUM_TIES // 2
MAX_HOPS = 5
DOCUMENT = "trail-"  # prefix of the ids of documents and held-out tasks
_QUESTION = re.compile(r"who is (\w+)((?: 's \w+)+) \?")


@dataclass(frozen=True)
class Question:
    """A question about the person at the end of a trail; `ties` are in the order in which they are
    followed from `person`."""

    person: str
    ties: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.ties)


@dataclass(frozen=True)
class HeldOutTask:
    """A held-out question with its true answer."""

    task_id: str
    question: Question
    answer: str


def trail_phrase(person: str, ties: tuple[str, ...]) -> str:
    """
    >>> trail_phrase("Baba", ("friend", "ally"))
    "Baba 's friend 's ally"
    """
    return " 's ".join((person, *ties))


def write_question(question: Question) -> str:
    """
    >>> write_question(Question("Baba", ("friend", "ally")))
    "who is Baba 's friend 's ally ?"
    """
    return f"who is {trail_phrase(question.person, question.ties)} ?"


def parse_question(text: str) -> Question | None:
    """Parse a question; None if the text does not follow the grammar."""
    match = _QUESTION.fullmatch(" ".join(text.split()))
    if match is None:
        return None
    ties = tuple(match[2].split()[1::2])
    if set(ties) - set(TIES):
        return None
    return Question(match[1], ties)


class World:
    """`num_people` people and their documents, drawn from a seed.

    `ties[person]` maps each tie of a person to the name of the other, in the order of the person's
    document; `texts[person]` is the document.
    """

    def __init__(self, seed: int, num_people: int) -> None:
        rng = random.Random(seed)
        self.names: list[str] = rng.sample(NAMES, num_people)
        self.ties: dict[str, dict[str, str]] = _draw_ties(rng, self.names)
        self.texts: dict[str, str] = {
            name: " ".join(
                rng.choice(FACT_SENTENCES).format(r=tie, e=name, v=other)
                for tie, other in ties.items()
            )
            for name, ties in self.ties.items()
        }

    def tie_between(self, person: str, other: str) -> str:
        """The tie between two people who have one."""
        return next(tie for tie, name in self.ties[person].items() if name == other)

    def true_answer(self, question: Question | None) -> str | None:
        """The person at the end of a question's trail; None if there is no such trail."""
        if question is None:
            return None
        person: str | None = question.person
        for tie in question.ties:
            person = self.ties.get(person or "", {}).get(tie)
        return person

    def draw_trail(self, rng: random.Random, hops: int) -> list[str]:
        """Distinct people, each tied to the next; one more than there are hops."""
        while True:
            trail = [rng.choice(self.names)]
            for _ in range(hops):
                unseen = [name for name in self.ties[trail[-1]].values() if name not in trail]
                if not unseen:
                    break
                trail.append(rng.choice(unseen))
            if len(trail) == hops + 1:
                return trail

    def question_along(self, trail: list[str]) -> Question:
        """The question from the first person of a trail to the last."""
        ties = [self.tie_between(*pair) for pair in pairwise(trail)]
        return Question(trail[0], tuple(ties))


def _draw_ties(rng: random.Random, names: list[str]) -> dict[str, dict[str, str]]:
    """NUM_TIES different ties of each person, to different people."""
    ties: dict[str, dict[str, str]] = {name: {} for name in names}
    for one, other in _draw_pairs(rng, names):
        # each of the two has at most three other ties, so at least two of the eight are left
        tie = rng.choice([tie for tie in TIES if tie not in ties[one] and tie not in ties[other]])
        ties[one][tie] = other
        ties[other][tie] = one
    return {name: dict(rng.sample(list(own.items()), NUM_TIES)) for name, own in ties.items()}


def _draw_pairs(rng: random.Random, names: list[str]) -> list[tuple[str, str]]:
    """The pairs of people to tie: neighbours in two rings of all people that have no pair in
    common."""
    while True:
        pairs: list[tuple[str, str]] = []
        for _ in range(NUM_RINGS):
            ring = rng.sample(names, len(names))
            pairs += zip(ring, ring[1:] + ring[:1], strict=True)
        if len(set(map(frozenset, pairs))) == len(pairs):
            return pairs


@lru_cache(maxsize=16)
def open_world(seed: int, num_people: int) -> World:
    """The world of a seed and a size; cached."""
    return World(seed, num_people)


def world_of(document_id: str | None) -> World | None:
    """The world named in the id of a document or a held-out task; None for any other id."""
    if document_id is None or not document_id.startswith(DOCUMENT):
        return None
    seed, num_people, *_ = document_id.removeprefix(DOCUMENT).split("-")
    return open_world(int(seed), int(num_people))


def corpus(seed: int, num_documents: int) -> list[dict[str, str]]:
    """Rows of a world's documents: document_id, title (the person's name), text."""
    world = open_world(seed, num_documents)
    return [
        {"document_id": f"{DOCUMENT}{seed}-{num_documents}-{name}", "title": name, "text": text}
        for name, text in world.texts.items()
    ]


def held_out_tasks(seed: int, num_tasks: int, num_people: int) -> list[HeldOutTask]:
    """Questions about `World(seed, num_people)`, with every number of hops equally often."""
    world = open_world(seed, num_people)
    rng = random.Random(seed)
    tasks = []
    for index in range(num_tasks):
        trail = world.draw_trail(rng, index % MAX_HOPS + 1)
        task_id = f"{DOCUMENT}{seed}-{num_people}-{index:04d}"
        tasks.append(HeldOutTask(task_id, world.question_along(trail), trail[-1]))
    return tasks
