"""Texts to shingles: every n neighbouring words (or characters) of a text as one 64-bit hash, read straight from
Arrow's string buffers by compiled loops.

Words are what separators leave of the text in NFKC and lower case: runs of letters, marks and digits; a character of a
script written without blanks (Chinese, Japanese, Thai, Lao) is a word of its own. The default, 5 words, is that of
Lee et al., "Deduplicating Training Data Makes Language Models Better" (arXiv 2107.06499), and of FineWeb (arXiv
2406.17557). A text of fewer words than n is one shingle; a text without words has none.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from pydantic import BaseModel, ConfigDict, PositiveInt

# A code point is no part of a word, part of one, or a word by itself.
SEPARATOR, LETTER, WORD = np.uint8(0), np.uint8(1), np.uint8(2)
KIND, UNSETTLED = np.uint8(3), np.uint8(4)
HANGUL_JAMO = slice(0x1100, 0x1200)
TOLD_APART = 0x20000  # code points from here on are ideographs
UNSPACED = ((0x0E00, 0x0EFF), (0x3040, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
BLANK = np.uint64(0x20)

FNV_OFFSET, FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
MIX_1, MIX_2, SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)
WEIGHT, OTHER_WEIGHT = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)  # odd


class Shingling(BaseModel):
    """What the shingles of a text are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Literal["words", "characters"] = "words"
    size: PositiveInt = 5


class Shingles(NamedTuple):
    """Shingles of D texts: those of text d are `hashes[offsets[d] : offsets[d + 1]]`, in the order of the text."""

    hashes: np.ndarray  # uint64
    offsets: np.ndarray  # int64, D + 1


def shingle(texts: pa.Array, shingling: Shingling) -> Shingles:
    """The shingles of every text, repeated ones included. A null is an empty text."""
    return Shingles(*_fold(*_hash_units(normalise(texts), shingling.unit), shingling.size))


def shingle_sets(texts: pa.Array, shingling: Shingling) -> Shingles:
    """The same as sets: each text's shingles once, in ascending order of their hashes."""
    hashes, offsets = shingle(texts, shingling)
    return Shingles(*_sort_and_drop_repeated(hashes, offsets))


def text_hashes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Two uint64 a text, equal where two texts have the same words in the same order; a text without words is taken
    by its bytes."""
    return _hash_sequences(*_hash_units(normalise(texts), "words"), *_buffers(texts.cast(pa.large_string())))


def shingle_hash(units: Sequence[bytes]) -> int:
    """The hash of one shingle, from its words or characters in UTF-8: what the compiled loops compute, for reference
    backends that hash shingle by shingle.

    >>> hex(shingle_hash([b"to", b"be", b"or", b"not", b"to"]))
    '0xb5068102c97ee209'
    """
    full = (1 << 64) - 1
    total = 0
    for unit in units:
        value = int(FNV_OFFSET)
        for byte in unit:
            value = (value ^ byte) * int(FNV_PRIME) & full
        total = (total * int(WEIGHT) + _mix_int(value)) & full
    return _mix_int(total)


def normalise(texts: pa.Array) -> pa.Array:
    """NFKC and lower case, as large_string."""
    texts = pc.fill_null(texts.cast(pa.large_string()), "")
    changes = _may_change(*_buffers(texts), _kinds())
    if changes.any():
        mask = pa.array(changes)
        changed = [unicodedata.normalize("NFKC", text) for text in texts.filter(mask).to_pylist()]
        texts = pc.call_function("replace_with_mask", [texts, mask, pa.array(changed, pa.large_string())])
    return pc.call_function("utf8_lower", [texts])


def _hash_units(texts: pa.Array, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of all words or characters (uint64), and where each text's begin (int64, D + 1)."""
    data, starts = _buffers(texts)
    fill, most = (_hash_words, len(data) + 1) if unit == "words" else (_hash_characters, 2 * len(data))
    units, offsets = np.empty(most, np.uint64), np.empty(len(starts), np.int64)
    fill(data, starts, _kinds(), units, offsets)
    return units[: offsets[-1]], offsets


def _buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes (uint8) and where each text begins in them (int64, D + 1). Nulls have no bytes."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    found = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return found[starts[0] : starts[-1]], starts - starts[0]


@functools.cache
def _kinds() -> np.ndarray:
    """Of each code point below TOLD_APART (uint8): its kind, and whether it is UNSETTLED, that is may change in NFKC,
    alone or by joining what stands before it (Unicode Standard Annex 15, quick check)."""
    points = [chr(c) for c in range(TOLD_APART)]
    kinds = np.array([unicodedata.category(c)[0] in "LMN" for c in points], np.uint8)
    for first, last in UNSPACED:
        kinds[first : last + 1] *= WORD
    joining = {part for c in points for part in unicodedata.decomposition(c).split()[1:]}
    for number, c in enumerate(points):
        if unicodedata.combining(c) or not unicodedata.is_normalized("NFKC", c) or f"{number:04X}" in joining:
            kinds[number] |= UNSETTLED
    kinds[HANGUL_JAMO] |= UNSETTLED
    return kinds


def _mix_int(value: int) -> int:
    for factor in (MIX_1, MIX_2):
        value = (value ^ value >> int(SHIFT)) * int(factor) & (1 << 64) - 1
    return value ^ value >> int(SHIFT)


@njit(cache=True, nogil=True)
def mix(value):
    """MurmurHash3's 64-bit finaliser: a bijection that spreads every bit."""
    value = (value ^ (value >> SHIFT)) * MIX_1
    value = (value ^ (value >> SHIFT)) * MIX_2
    return value ^ (value >> SHIFT)


@njit(cache=True, nogil=True)
def _code_point(data, at, end):
    """The code point that begins at a byte, and where the next one begins. The text is valid UTF-8."""
    byte = np.int64(data[at])
    if byte < 0x80:
        return byte, at + 1
    length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
    found = byte & (0x7F >> length)
    stop = min(at + length, end)
    for i in range(at + 1, stop):
        found = found << 6 | np.int64(data[i]) & 0x3F
    return found, stop


@njit(cache=True, nogil=True)
def _may_change(data, starts, kinds):
    """Which texts have a character that NFKC may change."""
    found = np.zeros(len(starts) - 1, np.bool_)
    for d in range(len(starts) - 1):
        at, end = starts[d], starts[d + 1]
        every = np.uint8(0)
        for i in range(at, end):
            every |= data[i]
        while every >= 0x80 and at < end and not found[d]:
            if data[at] < 0x80:
                at += 1
            else:
                point, at = _code_point(data, at, end)
                found[d] = point >= TOLD_APART or kinds[point] & UNSETTLED
    return found


@njit(cache=True, nogil=True)
def _hash_words(data, starts, kinds, units, offsets):
    """Fill `units` with the hashes of all texts' words. In ASCII the next hash is always written and only sometimes
    counted: a branch at every end of a word would double the time."""
    count = 0
    for d in range(len(starts) - 1):
        offsets[d] = count
        at, end = starts[d], starts[d + 1]
        value, within = FNV_OFFSET, 0
        while at < end:
            byte = data[at]
            if byte < 0x80:
                letter = kinds[byte] & LETTER
                units[count] = value
                count += within & (letter ^ 1)
                value = (value ^ byte) * FNV_PRIME if letter else FNV_OFFSET
                within = np.int64(letter)
                at += 1
                continue
            first = at
            point, at = _code_point(data, at, end)
            kind = WORD if point >= TOLD_APART else kinds[point] & KIND
            if within and kind != LETTER:
                units[count] = value
                count += 1
            if not within or kind != LETTER:
                value = FNV_OFFSET
            for i in range(first, at):
                value = (value ^ data[i]) * FNV_PRIME
            if kind == WORD:
                units[count] = value
                count += 1
            if kind != LETTER:
                value = FNV_OFFSET
            within = np.int64(kind == LETTER)
        units[count] = value
        count += within
    offsets[len(starts) - 1] = count
    for i in range(count):
        units[i] = mix(units[i])


@njit(cache=True, nogil=True)
def _hash_characters(data, starts, kinds, units, offsets):
    """Fill `units` with the hashes of the characters of all texts' words, one blank between words."""
    count = 0
    for d in range(len(starts) - 1):
        offsets[d] = count
        at, end = starts[d], starts[d + 1]
        within = False
        while at < end:
            first = at
            point, at = _code_point(data, at, end)
            kind = WORD if point >= TOLD_APART else kinds[point] & KIND
            if (kind == WORD or (kind == LETTER and not within)) and count > offsets[d]:
                units[count] = mix((FNV_OFFSET ^ BLANK) * FNV_PRIME)
                count += 1
            if kind != SEPARATOR:
                value = FNV_OFFSET
                for i in range(first, at):
                    value = (value ^ data[i]) * FNV_PRIME
                units[count] = mix(value)
                count += 1
            within = kind == LETTER
    offsets[len(starts) - 1] = count


@njit(cache=True, nogil=True)
def _fold(units, offsets, size):
    """Every `size` neighbouring units as one hash, and their offsets."""
    num_texts = len(offsets) - 1
    weights = np.ones(size, np.uint64)
    for i in range(size - 1, 0, -1):
        weights[i - 1] = weights[i] * WEIGHT
    found, places, count = np.empty(offsets[num_texts], np.uint64), np.empty(num_texts + 1, np.int64), 0
    for d in range(num_texts):
        places[d] = count
        first, end = offsets[d], offsets[d + 1]
        width = min(size, end - first)
        for at in range(first, end - width + 1 if width else first):
            total = np.uint64(0)
            for i in range(width):
                total += units[at + i] * weights[size - width + i]
            found[count] = mix(total)
            count += 1
    places[num_texts] = count
    return found[:count], places


@njit(cache=True, nogil=True)
def _sort_and_drop_repeated(hashes, offsets):
    found, places, count = np.empty_like(hashes), np.empty_like(offsets), 0
    for d in range(len(offsets) - 1):
        places[d] = count
        ordered = np.sort(hashes[offsets[d] : offsets[d + 1]])
        for i in range(len(ordered)):
            if i == 0 or ordered[i] != ordered[i - 1]:
                found[count] = ordered[i]
                count += 1
    places[len(offsets) - 1] = count
    return found[:count], places


@njit(cache=True, nogil=True)
def _hash_sequences(units, offsets, data, starts):
    """Two hashes of each text's units in their order; of its bytes where it has none."""
    num_texts = len(offsets) - 1
    high, low = np.empty(num_texts, np.uint64), np.empty(num_texts, np.uint64)
    for d in range(num_texts):
        one, other = np.uint64(1), np.uint64(1)
        for i in range(offsets[d], offsets[d + 1]):
            one, other = one * WEIGHT + units[i], other * OTHER_WEIGHT + units[i]
        if offsets[d] == offsets[d + 1]:
            one, other = np.uint64(2), np.uint64(2)
            for i in range(starts[d], starts[d + 1]):
                byte = mix(np.uint64(data[i]) + WEIGHT)
                one, other = one * WEIGHT + byte, other * OTHER_WEIGHT + byte
        high[d], low[d] = mix(one), mix(other)
    return high, low
