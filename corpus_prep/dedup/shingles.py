"""Shingles of texts: every n consecutive words (or characters) as one 64-bit hash.

`corpus_prep.dedup.units` defines a word. The default of 5 words is that of Lee et al.,
"Deduplicating Training Data Makes Language Models Better" (arXiv 2107.06499), and of FineWeb (arXiv
2406.17557). A text of fewer than n words is one shingle; a text without words has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.dedup.units import buffers, hash_units, mix, mix_int, unit_hash

# odd
WEIGHT = np.uint64(0x9E3779B97F4A7C15)
OTHER_WEIGHT = np.uint64(0xD6E8FEB86659FD93)


class Shingling(BaseModel):
    """How a text is divided into shingles."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    unit: Literal["words", "characters"] = Field(
        default="words",
        description=(
            "what a shingle consists of; use characters for text without spaces, such as Chinese"
        ),
    )
    size: PositiveInt = Field(default=5, description="number of words or characters in a shingle")


class Shingles(NamedTuple):
    """Shingles of D texts.

    Those of text d are `hashes[offsets[d] : offsets[d + 1]]`, in the order of the text.
    """

    hashes: np.ndarray  # uint64
    offsets: np.ndarray  # int64, D + 1


def shingle(texts: pa.Array, shingling: Shingling) -> Shingles:
    """The shingles of every text, including repeated ones. A null counts as an empty text."""
    return Shingles(*_fold(*hash_units(texts, shingling.unit), shingling.size))


def shingle_sets(texts: pa.Array, shingling: Shingling) -> Shingles:
    """The distinct shingles of every text, in ascending order of their hashes."""
    hashes, offsets = shingle(texts, shingling)
    return Shingles(*_sort_and_drop_repeated(hashes, offsets))


def text_hashes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Two uint64 per text, equal if two texts have the same words in the same order.

    A text without words is hashed by its bytes.
    """
    return _hash_sequences(*hash_units(texts, "words"), *buffers(texts.cast(pa.large_string())))


def shingle_hash(units: Sequence[bytes]) -> int:
    """The hash of one shingle, from its words or characters in UTF-8.

    Equal to what the compiled loops compute; for reference backends that hash shingle by shingle.

    >>> hex(shingle_hash([b"to", b"be", b"or", b"not", b"to"]))
    '0x6c71e77bd927bb7d'
    """
    total = 0
    for unit in units:
        total = (total * int(WEIGHT) + unit_hash(unit)) % 2**64
    return mix_int(total)


@njit(cache=True, nogil=True)
def _fold(units, offsets, size):
    """Every `size` consecutive units as one hash, and the offsets of the texts."""
    num_texts = len(offsets) - 1
    weights = np.ones(size, np.uint64)
    for i in range(size - 1, 0, -1):
        weights[i - 1] = weights[i] * WEIGHT
    folded = np.empty(offsets[num_texts], np.uint64)
    places = np.empty(num_texts + 1, np.int64)
    count = 0
    for d in range(num_texts):
        places[d] = count
        first = offsets[d]
        end = offsets[d + 1]
        width = min(size, end - first)
        for at in range(first, end - width + 1 if width else first):
            total = np.uint64(0)
            for i in range(width):
                total += units[at + i] * weights[size - width + i]
            folded[count] = mix(total)
            count += 1
    places[num_texts] = count
    return folded[:count], places


@njit(cache=True, nogil=True)
def _sort_and_drop_repeated(hashes, offsets):
    kept = np.empty_like(hashes)
    places = np.empty_like(offsets)
    count = 0
    for d in range(len(offsets) - 1):
        places[d] = count
        ordered = np.sort(hashes[offsets[d] : offsets[d + 1]])
        for i in range(len(ordered)):
            if i == 0 or ordered[i] != ordered[i - 1]:
                kept[count] = ordered[i]
                count += 1
    places[len(offsets) - 1] = count
    return kept[:count], places


@njit(cache=True, nogil=True)
def _hash_sequences(units, offsets, data, starts):
    """Two hashes of each text's sequence of units, or of its bytes if it has none."""
    num_texts = len(offsets) - 1
    high = np.empty(num_texts, np.uint64)
    low = np.empty(num_texts, np.uint64)
    for d in range(num_texts):
        one = np.uint64(1)
        other = np.uint64(1)
        for i in range(offsets[d], offsets[d + 1]):
            one = one * WEIGHT + units[i]
            other = other * OTHER_WEIGHT + units[i]
        if offsets[d] == offsets[d + 1]:
            one = np.uint64(2)
            other = np.uint64(2)
            for i in range(starts[d], starts[d + 1]):
                byte = mix(np.uint64(data[i]) + WEIGHT)
                one = one * WEIGHT + byte
                other = other * OTHER_WEIGHT + byte
        high[d] = mix(one)
        low[d] = mix(other)
    return high, low
