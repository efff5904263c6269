"""A second synthetic corpus: ledgers, which list what an entity has, with a running result.

A question names the first items of a ledger, at least two, and asks for their result. A player who
sees the ledger can read the answer off it; without the ledger, the answer takes one step for every
further item. So a question's length is its difficulty, and practice improves a skill rather than
knowledge: no fact about an entity carries over from one world to another. Ledgers have six items
or, where harder questions must always be possible, sixteen or thirty-two.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flows.worlds.encyclopaedia import NAMES, VALUES

Kind = Literal["total", "unknown", "most"]
KINDS: dict[Kind, float] = {"total": 0.4, "unknown": 0.15, "most": 0.45}
MATHEMATICS: tuple[Kind, ...] = ("total", "unknown")
ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
    "ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
    "seventeenth", "eighteenth", "nineteenth", "twentieth", "twenty-first", "twenty-second",
    "twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth", "twenty-seventh",
    "twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first", "thirty-second",
)  # fmt: skip
NUM_ITEMS = 6
NUM_ITEMS_LONG = 16
NUM_ITEMS_DEEP = len(ORDINALS)
FEWEST_ASKED = 2
LARGEST = 9
LARGEST_OF_MOST = 20
LARGEST_OF_MOST_DEEP = 60
UNKNOWN_QUANTITY = "x"
ITEMS = tuple(word for words in VALUES.values() for word in words)
ANSWER_TYPES: dict[Kind, str] = {"total": "Integer", "unknown": "Expression", "most": "String"}
LETTERS = ("A", "B", "C", "D")
ASKS: dict[Kind, str] = {
    "total": "how many in all ?",
    "unknown": "how many in all ?",
    "most": "which is most ?",
}
_ITEM_SET = frozenset(ITEMS)


@dataclass(frozen=True)
class Ledger:
    """What an entity has. Quantities are words; the first one of an `unknown` ledger is `x`."""

    entity: str
    kind: Kind
    items: tuple[str, ...]
    quantities: tuple[str, ...]

    def comes_to(self, count: int) -> str:
        """The result of the first `count` items: their total, or the item with the largest
        quantity.

        >>> Ledger("Baba", "unknown", ("cr", "fo", "me"), ("x", "5", "9")).comes_to(3)
        'x + 14'
        """
        known = [int(q) for q in self.quantities[:count] if q != UNKNOWN_QUANTITY]
        if self.kind == "most":
            return self.items[known.index(max(known))]
        if self.kind == "total":
            return str(sum(known))
        if known:
            return f"{UNKNOWN_QUANTITY} + {sum(known)}"
        return UNKNOWN_QUANTITY

    @property
    def text(self) -> str:
        """The ledger's document: each entry with the result of the entries up to it."""
        verb = "most" if self.kind == "most" else "makes"
        entries = zip(ORDINALS, self.quantities, self.items, strict=False)
        lines = [
            f"{o} {q} {item} {verb} {self.comes_to(n)} ."
            for n, (o, q, item) in enumerate(entries, 1)
        ]
        return f"{self.entity} has {' '.join(lines)}"

    def question(self, count: int) -> str:
        """
        >>> Ledger("Baba", "total", ("cr", "fo", "me"), ("7", "5", "9")).question(2)
        'Baba has 7 cr and 5 fo . how many in all ?'
        """
        pairs = zip(self.quantities[:count], self.items[:count], strict=True)
        entries = " and ".join(f"{quantity} {item}" for quantity, item in pairs)
        return f"{self.entity} has {entries} . {ASKS[self.kind]}"

    def choices(self, rng: random.Random, count: int) -> list[str]:
        """Four distinct options: the wrong ones in order, with the answer at a random place.

        Wrong ones are other items of the ledger, or results of fewer or more items and numbers near
        the answer.
        """
        answer = self.comes_to(count)
        num_wrong = len(LETTERS) - 1
        if self.kind == "most":
            others = rng.sample([item for item in self.items if item != answer], num_wrong)
            wrong = sorted(others, key=self.items.index)
        else:
            partial = [int(self.comes_to(n)) for n in rng.sample(range(1, len(self.items) + 1), 2)]
            near = [int(answer) + by for by in rng.sample((-4, -3, -2, -1, 1, 2, 3, 4), 8)]
            # without duplicates, in the order in which they were drawn
            different = dict.fromkeys(n for n in [*partial, *near] if n > 0 and n != int(answer))
            wrong = [str(n) for n in sorted(list(different)[:num_wrong])]
        at = rng.randrange(len(LETTERS))
        return [*wrong[:at], answer, *wrong[at:]]


def draw_ledger(
    rng: random.Random,
    names: Sequence[str],
    kind: Kind | None = None,
    num_items: int = NUM_ITEMS,
) -> Ledger:
    """A random ledger with one of these names; by default of any kind, in the usual proportions."""
    kind = kind or rng.choices(list(KINDS), list(KINDS.values()))[0]
    items = tuple(rng.sample(ITEMS, num_items))
    if kind == "most":  # quantities are distinct
        largest = LARGEST_OF_MOST if num_items <= NUM_ITEMS_LONG else LARGEST_OF_MOST_DEEP
        quantities = [str(q) for q in rng.sample(range(1, largest + 1), num_items)]
    else:
        quantities = [str(rng.randint(1, LARGEST)) for _ in items]
    if kind == "unknown":
        quantities[0] = UNKNOWN_QUANTITY
    return Ledger(rng.choice(names), kind, items, tuple(quantities))


_QUESTION = re.compile(
    r"(\w+) has ((?:\w+ \w+)(?: and \w+ \w+)*) \. (how many in all|which is most) \?"
)


def parse_question(text: str) -> Ledger | None:
    """The ledger that a question describes; None if the question does not follow the grammar."""
    match = _QUESTION.fullmatch(" ".join(text.split()))
    if match is None or match[1] not in NAMES:
        return None
    pairs = [entry.split() for entry in match[2].split(" and ")]
    if any(len(pair) != 2 for pair in pairs):  # "and" in place of a quantity or an item
        return None
    quantities = tuple(quantity for quantity, _ in pairs)
    items = tuple(item for _, item in pairs)
    is_unknown = quantities[0] == UNKNOWN_QUANTITY
    numbers = quantities
    if is_unknown:
        numbers = quantities[1:]
    if set(items) - _ITEM_SET or len(items) < FEWEST_ASKED:
        return None
    if not all(number.isdecimal() for number in numbers):
        return None
    kind: Kind = "total"
    if is_unknown:
        kind = "unknown"
    if match[3] == "which is most":
        has_ties = len(set(quantities)) < len(quantities)
        if is_unknown or has_ties:
            return None
        kind = "most"
    return Ledger(match[1], kind, items, quantities)


def true_answer(question: str, options: Sequence[str] | None = None) -> str | None:
    """The result that a question asks for, as a letter if options are given; None if the question
    does not follow the grammar, or if not exactly one option is right."""
    ledger = parse_question(question)
    if ledger is None:
        return None
    answer = ledger.comes_to(len(ledger.items))
    if not options:
        return answer
    lettered = zip(LETTERS, options, strict=False)
    right = [letter for letter, option in lettered if option.split() == answer.split()]
    if len(right) != 1:
        return None
    return right[0]


@dataclass(frozen=True)
class BenchTask:
    """A held-out question; `options` is empty for free form, and `count` is the number of items."""

    task_id: str
    answer_type: str
    question: str
    options: tuple[str, ...]
    answer: str
    count: int


def corpus(
    seed: int,
    num_documents: int,
    kinds: Sequence[Kind] = tuple(KINDS),
    name: str = "ledgers",
    num_items: int = NUM_ITEMS,
) -> list[dict[str, str]]:
    """Rows of document_id, title (the entity) and text: ledgers of the given kinds, in their
    usual proportions."""
    rng = random.Random(f"{name} {seed}")
    drawn = rng.choices(list(kinds), [KINDS[kind] for kind in kinds], k=num_documents)
    ledgers = [draw_ledger(rng, NAMES, kind, num_items) for kind in drawn]
    return [
        {"document_id": f"{name}-{seed}-{i:04d}", "title": ledger.entity, "text": ledger.text}
        for i, ledger in enumerate(ledgers)
    ]


def held_out_tasks(seed: int, num_tasks: int, num_items: int = NUM_ITEMS) -> list[BenchTask]:
    """Questions about ledgers of a separate world, with every form and every number of items up to
    `num_items` equally often."""
    rng = random.Random(f"bench {seed}")
    # (kind, whether options are given)
    forms: list[tuple[Kind, bool]] = [
        *((kind, False) for kind in KINDS),
        ("total", True),
        ("most", True),
    ]
    num_counts = num_items - FEWEST_ASKED + 1
    tasks = []
    for i in range(num_tasks):
        kind, is_choice = forms[i % len(forms)]
        count = FEWEST_ASKED + i // len(forms) % num_counts
        ledger = draw_ledger(rng, NAMES, kind, num_items)
        options: tuple[str, ...] = ()
        answer_type = ANSWER_TYPES[kind]
        if is_choice:
            options = tuple(ledger.choices(rng, count))
            answer_type = "multiple_choice"
        question = ledger.question(count)
        answer = true_answer(question, options)
        assert answer is not None
        task_id = f"ledger-{seed}-{i:04d}"
        if num_items != NUM_ITEMS:
            task_id = f"ledger-of-{num_items}-{seed}-{i:04d}"
        tasks.append(BenchTask(task_id, answer_type, question, options, answer, count))
    return tasks
