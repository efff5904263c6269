"""Ledgers in which consecutive entries are masked: the tasks that Golden Goose makes from ledgers.

An option states all masked entries, with their true quantities and items. A wrong option has wrong
results from some entry on, perhaps only in the last one. Finding the right option takes one step
per masked entry, so the length of a mask is its difficulty.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flows.worlds.encyclopaedia import NAMES
from flows.worlds.ledgers import (
    LARGEST,
    LETTERS,
    NUM_ITEMS_LONG,
    ORDINALS,
    UNKNOWN_QUANTITY,
    Kind,
    Ledger,
    draw_ledger,
)

MASK = "[MASK]"
LONGEST_MASK = NUM_ITEMS_LONG // 2  # a mask covers at most half of a text
FIRST_MASKED = 1  # the first entry stays visible: it shows whether results are totals
_ENTRY = re.compile(r"(\w+) (\w+) (\w+) (makes|most) (\w+(?: \+ \d+)?) \.")


@dataclass(frozen=True)
class Entry:
    """A line of a ledger: `third 9 me makes 21 .`"""

    ordinal: str
    quantity: str
    item: str
    verb: str
    result: str

    @property
    def text(self) -> str:
        return f"{self.ordinal} {self.quantity} {self.item} {self.verb} {self.result} ."


def entries_of(ledger: Ledger) -> list[Entry]:
    """The lines of a ledger's text.

    >>> ledger = Ledger("Baba", "total", ("cr", "fo"), ("7", "5"))
    >>> [entry.text for entry in entries_of(ledger)]
    ['first 7 cr makes 7 .', 'second 5 fo makes 12 .']
    """
    verb = "most" if ledger.kind == "most" else "makes"
    held = zip(ORDINALS, ledger.quantities, ledger.items, strict=False)
    return [Entry(o, q, item, verb, ledger.comes_to(n)) for n, (o, q, item) in enumerate(held, 1)]


def parse_entries(text: str) -> list[Entry] | None:
    """The entries of which a text consists; None if it is empty or contains anything else.

    >>> [entry.result for entry in parse_entries("first x cr makes x . second 5 fo makes x + 5 .")]
    ['x', 'x + 5']
    """
    words = " ".join(text.split())
    entries = [Entry(*match.groups()) for match in _ENTRY.finditer(words)]
    if not entries or " ".join(entry.text for entry in entries) != words:
        return None
    return entries


@dataclass(frozen=True)
class Masked:
    """A ledger whose entries from `start` up to but not including `end`, counted from 0, are
    masked."""

    ledger: Ledger
    start: int
    end: int

    @property
    def text(self) -> str:
        entries = [entry.text for entry in entries_of(self.ledger)]
        shown = [*entries[: self.start], MASK, *entries[self.end :]]
        return f"{self.ledger.entity} has {' '.join(shown)}"

    @property
    def step(self) -> str:
        """The masked text."""
        return " ".join(entry.text for entry in entries_of(self.ledger)[self.start : self.end])

    def distractors(self, rng: random.Random, number: int) -> list[str]:
        """Wrong versions of the masked text.

        The first is wrong from its first entry on, the second from its second, and so on; the last
        is wrong only in its last entry. To make all of them different, sums are off by 1 to 3 in
        the first of three distractors, by 4 to 6 in the second, and by 7 to 9 in the third.
        """
        truth = entries_of(self.ledger)[self.start : self.end]
        others = self._other_items()
        wrong = []
        for i in range(number):
            first_wrong = len(truth) - 1
            if i < number - 1:
                first_wrong = min(i, first_wrong)
            size = rng.randint(i * LARGEST // number + 1, (i + 1) * LARGEST // number)
            offset = rng.choice((-1, 1)) * size
            other = rng.choice(others[i::number])
            lines = [
                entry.text if n < first_wrong else _with_result(entry, offset, other)
                for n, entry in enumerate(truth)
            ]
            wrong.append(" ".join(lines))
        return wrong

    def _other_items(self) -> list[str]:
        """The items that are not the result of any masked entry."""
        true = {entry.result for entry in entries_of(self.ledger)[self.start : self.end]}
        return [item for item in self.ledger.items if item not in true]


def _with_result(entry: Entry, offset: int, other: str) -> str:
    """The text of an entry with a wrong result: a sum that is `offset` off, with the sign reversed
    if it would fall below 1, or the item `other`."""
    result = other
    if entry.verb == "makes":
        *unknown, total = entry.result.split()
        wrong = int(total) + offset
        if wrong < 1:
            wrong = int(total) - offset
        result = " ".join([*unknown, str(wrong)])
    return replace(entry, result=result).text


def draw_masked(
    rng: random.Random, names: Sequence[str], length: int, kind: Kind | None = None
) -> Masked:
    """A long ledger with a mask of `length` entries at a random place after the first entry."""
    ledger = draw_ledger(rng, names, kind, NUM_ITEMS_LONG)
    start = rng.randint(FIRST_MASKED, NUM_ITEMS_LONG - length)
    return Masked(ledger, start, start + length)


def true_letter(text: str, options: Sequence[str]) -> str | None:
    """The letter of the only option whose results are right; None for a text that is not a masked
    ledger, or if not exactly one option is right."""
    before = _before_the_mask(text)
    if before is None:
        return None
    lettered = zip(LETTERS, options, strict=False)
    right = [letter for letter, option in lettered if _continues(before, option)]
    if len(right) != 1:
        return None
    return right[0]


def _before_the_mask(text: str) -> list[Entry] | None:
    shown, mask, _ = " ".join(text.split()).partition(f" {MASK}")
    entity, has, entries = shown.partition(" has ")
    if not mask or not has or entity not in NAMES:
        return None
    parsed = parse_entries(entries)
    if parsed is None or not _follow(parsed, parsed[0].verb):
        return None
    return parsed


def _continues(before: list[Entry], option: str) -> bool:
    masked = parse_entries(option)
    return masked is not None and _follow([*before, *masked], before[0].verb)


def _follow(entries: list[Entry], verb: str) -> bool:
    """Whether these are the entries of a ledger, from its first one on, with right results."""
    kind: Kind = "total"
    if verb == "most":
        kind = "most"
    elif entries[0].quantity == UNKNOWN_QUANTITY:
        kind = "unknown"
    if not all(entry.quantity.isdecimal() for entry in entries[kind == "unknown" :]):
        return False
    items = tuple(entry.item for entry in entries)
    quantities = tuple(entry.quantity for entry in entries)
    return entries_of(Ledger("", kind, items, quantities)) == entries


@dataclass(frozen=True)
class MaskedTask:
    """A held-out task; `length` is the number of masked entries."""

    task_id: str
    text: str
    options: tuple[str, ...]
    answer: str
    length: int


def held_out_tasks(seed: int, num_tasks: int) -> list[MaskedTask]:
    """Tasks about ledgers of a separate world, with every length of mask equally often."""
    rng = random.Random(f"masked {seed}")
    tasks = []
    for i in range(num_tasks):
        length = 1 + i % LONGEST_MASK
        masked = draw_masked(rng, NAMES, length)
        options = [masked.step, *masked.distractors(rng, len(LETTERS) - 1)]
        rng.shuffle(options)
        answer = true_letter(masked.text, options)
        assert answer is not None
        tasks.append(
            MaskedTask(f"masked-{seed}-{i:04d}", masked.text, tuple(options), answer, length)
        )
    return tasks
