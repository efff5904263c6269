"""Remember which texts were seen before, in 12 to 24 bytes each: a corpus has millions of ids."""

from __future__ import annotations

import hashlib
from array import array

FIRST_SLOTS = 1 << 16


class TextSet:
    """A set of texts that only grows.

    It stores a 64-bit hash of each: the probability of a collision is 4e-7 among 4 million texts,
    3e-4 among 100 million.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * FIRST_SLOTS))
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def __contains__(self, text: str) -> bool:
        return self._slots[self._slot(_hash(text))] != 0

    def add(self, text: str) -> None:
        """Add a text; nothing changes if the set has it."""
        value = _hash(text)
        at = self._slot(value)
        self._num += self._slots[at] == 0
        self._slots[at] = value
        if 3 * self._num > 2 * len(self._slots):
            self._grow()

    def _slot(self, value: int) -> int:
        """The slot of a hash, or the empty slot where it belongs."""
        slots = self._slots
        mask = len(self._slots) - 1
        at = value & mask
        while slots[at] and slots[at] != value:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        kept = self._slots
        self._slots = array("Q", bytes(16 * len(self._slots)))
        for value in kept:
            if value:
                self._slots[self._slot(value)] = value


def _hash(text: str) -> int:
    return (
        int.from_bytes(
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        )
        or 1
    )
