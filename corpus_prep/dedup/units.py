"""Hash the units of texts, words or characters.

Compiled loops read them straight from Arrow's string buffers.

Words are runs of letters, marks and digits in the text's lower-case NFKC form. In a script written
without spaces (`corpus_prep.scripts`), each character is a word. Invisible characters do not count.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from corpus_prep.scripts import UNSPACED

# A code point is outside words, part of a word, or a word by itself.
SEPARATOR = np.uint8(0)
LETTER = np.uint8(1)
WORD = np.uint8(2)
KIND = np.uint8(3)
UNSETTLED = np.uint8(4)
HANGUL_JAMO = slice(0x1100, 0x1200)
TOLD_APART = 0x20000  # code points from here on are ideographs
# joiners, soft hyphens
INVISIBLE = dict.fromkeys(c for c in range(0x20000) if unicodedata.category(chr(c)) == "Cf")

MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
SHIFT = np.uint64(33)
BLOCK = 8  # bytes
ONES = np.uint64(0x0101010101010101)
HIGHS = np.uint64(0x8080808080808080)
ALL = np.uint64(2**64 - 1)
# a block of bytes 0 or 1 times this has them as its top eight bits, the first byte lowest
GATHER = np.uint64(0x0102040810204080)
# the bit set in ASCII's lower-case letters and digits, and clear in its upper-case letters
CASE = np.uint64(0x20)
BLANK = np.uint64(0x20)


def hash_units(texts: pa.Array, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of all words or characters (uint64), and where each text's begin (int64, D + 1).

    A null counts as an empty text.
    """
    data, starts = buffers(_normalise(pc.fill_null(texts.cast(pa.large_string()), "")))
    if len(data) < BLOCK:  # the loops load a whole block at once
        data = np.pad(data, (0, BLOCK))
    if unit == "words":
        fill = _hash_words
        most = len(data) + 1
    else:
        fill = _hash_characters
        most = 2 * len(data)
    units = np.empty(most, np.uint64)
    offsets = np.empty(len(starts), np.int64)
    fill(data, starts, _kinds(), units, offsets)
    return units[: offsets[-1]], offsets


def unit_hash(unit: bytes) -> int:
    """The hash of one word or character in UTF-8; a reference for the compiled loops."""
    value = 0
    for at in range(0, len(unit), BLOCK):
        value = mix_int(value ^ int.from_bytes(unit[at : at + BLOCK], "little"))
    return value


def buffers(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes (uint8) and where each text begins in them (int64, D + 1). Nulls have no bytes."""
    _, offsets, data = texts.buffers()
    starts = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return content[starts[0] : starts[-1]], starts - starts[0]


def _normalise(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """NFKC and lower case.

    ASCII texts stay as they are: the loops that hash words fold their case.
    """
    beyond = pc.call_function("invert", [pc.call_function("string_is_ascii", [texts])])
    return _replace(texts, beyond, lambda some: pc.call_function("utf8_lower", [_nfkc(some)]))


def _nfkc(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    def compose(some: pa.LargeStringArray) -> pa.LargeStringArray:
        return pa.array(
            [unicodedata.normalize("NFKC", t.translate(INVISIBLE)) for t in some.to_pylist()],
            some.type,
        )

    return _replace(texts, pa.array(_may_change(*buffers(texts), _kinds())), compose)


def _replace(
    texts: pa.Array, which: pa.BooleanArray, make: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """The texts, with those in `which` replaced by what `make` returns."""
    some = texts.filter(which)
    if not len(some):
        return texts
    return pc.call_function("replace_with_mask", [texts, which, make(some)])


@functools.cache
def _kinds() -> np.ndarray:
    """For each code point below TOLD_APART (uint8): its kind, and whether it is UNSETTLED.

    NFKC may change which words an unsettled one is part of, alone or by joining it to what precedes
    it (Unicode Standard Annex 15, quick check).
    """
    points = [chr(c) for c in range(TOLD_APART)]
    kinds = np.array([_in_words(c) for c in points], np.uint8)
    for first, last in UNSPACED:
        kinds[first : min(last + 1, TOLD_APART)] *= WORD
    canonical = (
        parts.split() for c in points if not (parts := unicodedata.decomposition(c)).startswith("<")
    )
    joining = {int(part, 16) for parts in canonical for part in parts[1:]}
    for number, c in enumerate(points):
        composed = unicodedata.normalize("NFKC", c)
        changes = composed != c and any(map(_in_words, c + composed))
        if changes or unicodedata.combining(c) or number in joining:
            kinds[number] |= UNSETTLED
    kinds[[*INVISIBLE]] |= UNSETTLED
    kinds[HANGUL_JAMO] |= UNSETTLED
    return kinds


def _in_words(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"


def mix_int(value: int) -> int:
    """`mix`, for Python integers."""
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
def byte_length(byte):
    """The bytes of the character that begins with this byte in valid UTF-8."""
    if byte < 0x80:
        return 1
    if byte < 0xE0:
        return 2
    if byte < 0xF0:
        return 3
    return 4


@njit(cache=True, nogil=True)
def _code_point(data, at, end):
    """The code point that begins at a byte of valid UTF-8, and where the next one begins."""
    byte = np.int64(data[at])
    if byte < 0x80:
        return byte, at + 1
    length = byte_length(byte)
    point = byte & (0x7F >> length)
    stop = min(at + length, end)
    for i in range(at + 1, stop):
        point = point << 6 | np.int64(data[i]) & 0x3F
    return point, stop


@njit(cache=True, nogil=True)
def _may_change(data, starts, kinds):
    """Whether each text has a character that NFKC may change (bool)."""
    may_change = np.zeros(len(starts) - 1, np.bool_)
    for d in range(len(starts) - 1):
        at = starts[d]
        end = starts[d + 1]
        while at < end and not may_change[d]:
            point, at = _code_point(data, at, end)
            may_change[d] = point >= TOLD_APART or kinds[point] & UNSETTLED
    return may_change


@njit(cache=True, nogil=True)
def _block(data, at):
    """Eight bytes, the first one lowest. The compiler turns this into one load."""
    at = np.uint64(at)
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@njit(cache=True, nogil=True)
def _between(block, first, last):
    """In eight bytes of ASCII, the highest bit of every byte in a range.

    The range is from `first` to `last`, inclusive.
    """
    return (
        (block + ONES * np.uint64(0x80 - first)) & ~(block + ONES * np.uint64(0x7F - last)) & HIGHS
    )


@njit(cache=True, nogil=True)
def _find_words(data, at, end, kinds, places):
    """Fill `places` with the places where words of a text begin and end, alternately.

    Returns their number. Eight bytes of ASCII are processed at once. A place is always written but
    only sometimes counted, since a branch at every word boundary would cost more than everything
    else.
    """
    count = 0
    within = np.uint64(0)
    while at < end:
        block = _block(data, at) if at + BLOCK <= end else HIGHS
        if block & HIGHS == 0:
            letters = _between(block | ONES * CASE, 0x61, 0x7A) | _between(block, 0x30, 0x39)
            letters = (letters >> np.uint64(7)) * GATHER >> np.uint64(56)  # one bit per byte
            turns = letters ^ (letters << np.uint64(1) | within)
            for i in range(BLOCK):
                places[count] = at + i
                count += np.int64(turns >> np.uint64(i) & np.uint64(1))
            within = letters >> np.uint64(7)
            at += BLOCK
            continue
        first = at
        point, at = _code_point(data, at, end)
        kind = WORD if point >= TOLD_APART else kinds[point] & KIND
        if within != (kind == LETTER):
            places[count] = first
            count += 1
        if kind == WORD:
            places[count] = first
            places[count + 1] = at
            count += 2
        within = np.uint64(kind == LETTER)
    places[count] = end
    return count + np.int64(within)


@njit(cache=True, nogil=True)
def _lowered(data, at):
    """Eight bytes, the ASCII ones in lower case; within a word these are letters and digits."""
    block = _block(data, at)
    return block | (~block & HIGHS) >> np.uint64(2)


@njit(cache=True, nogil=True)
def _hash_unit(data, at, end):
    """The hash of the bytes from `at` to `end`."""
    value = np.uint64(0)
    while end - at > BLOCK:
        value = mix(value ^ _lowered(data, at))
        at += BLOCK
    first = min(at, len(data) - BLOCK)
    block = _lowered(data, first) >> np.uint64(8 * (at - first))
    return mix(value ^ block & ALL >> np.uint64(8 * (BLOCK - (end - at))))


@njit(cache=True, nogil=True)
def _hash_words(data, starts, kinds, units, offsets):
    """Fill `units` with the hashes of all texts' words."""
    longest = np.diff(starts).max() + BLOCK + 1 if len(starts) > 1 else 0
    places = np.empty(longest, np.int64)
    count = 0
    for d in range(len(starts) - 1):
        offsets[d] = count
        for i in range(0, _find_words(data, starts[d], starts[d + 1], kinds, places), 2):
            units[count] = _hash_unit(data, places[i], places[i + 1])
            count += 1
    offsets[len(starts) - 1] = count


@njit(cache=True, nogil=True)
def _hash_characters(data, starts, kinds, units, offsets):
    """Fill `units` with the hashes of the characters in all texts' words.

    There is one blank between words.
    """
    count = 0
    for d in range(len(starts) - 1):
        offsets[d] = count
        at = starts[d]
        end = starts[d + 1]
        within = False
        while at < end:
            first = at
            point, at = _code_point(data, at, end)
            kind = WORD if point >= TOLD_APART else kinds[point] & KIND
            if (kind == WORD or (kind == LETTER and not within)) and count > offsets[d]:
                units[count] = mix(BLANK)
                count += 1
            if kind != SEPARATOR:
                units[count] = _hash_unit(data, first, at)
                count += 1
            within = kind == LETTER
    offsets[len(starts) - 1] = count
