"""Texts to hashed words, straight from Arrow's buffers: what n-grams are compared by.

A word is a run of letters and digits, folded: compatibility forms, accents and case do not count. Chinese and
Japanese, written without spaces, have a word for each character. Every character folds to at most one other, so a
word's place in the text is known without looking twice.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MAX_BYTES = 1 << 20  # of text worked on at once: about 60 MiB of arrays
FOLDED = 0x30000  # characters from here on (private use, tags) are skipped
SKIPPED, SEPARATOR, ALONE = -1, 0, 1 << 24  # of the folding table: no character, no word, a word by itself
UNSPACED = ((0x3040, 0x3100), (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00), (0x20000, FOLDED))
WORD_BASE, GRAM_BASE = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93  # odd, so that their powers can be divided by


@dataclass(frozen=True)
class Words:
    """Words of texts, in order. Of each its text (0-based), characters, and hash when folded."""

    document: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray


def words(texts: pa.Array | pa.ChunkedArray) -> Iterator[Words]:
    """The words of the texts, whole texts of together about MAX_BYTES at a time."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    first = 0
    for chunk in chunks:
        ends = np.cumsum(pc.fill_null(pc.call_function("binary_length", [chunk]), 0).to_numpy(zero_copy_only=False))
        start = 0
        while start < len(chunk):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + MAX_BYTES, side="right")))
            found = _words(chunk.slice(start, stop - start))
            yield Words(found.document + (first + start), found.start, found.end, found.hash)
            start = stop
        first += len(chunk)


def grams(found: Words, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All runs of n words that lie in one text: the hash of each, and the place in `found` of its first word."""
    count = len(found.hash) - n + 1
    if count <= 0:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    first_W = np.flatnonzero(found.document[:count] == found.document[n - 1 :])
    forward_W, back_W = _powers(len(found.hash), GRAM_BASE)
    sum_W = np.concatenate([np.zeros(1, np.uint64), np.cumsum(found.hash * forward_W)])
    return _mixed((sum_W[first_W + n] - sum_W[first_W]) * back_W[first_W]), first_W


def folded(text: str) -> list[tuple[str, int, int]]:
    """The same words one by one, as text, with their places: for reading and for checking the fast way."""
    table, out = _table(), []
    word, start, end = "", 0, 0
    for place, character in enumerate(text):
        value = int(table[min(ord(character), FOLDED - 1)])
        if value == SKIPPED:
            continue
        if word and (value == SEPARATOR or value & ALONE or out_of_line(word)):
            out.append((word, start, end))
            word = ""
        if value != SEPARATOR:
            start = place if not word else start
            word, end = word + chr(value & ~ALONE), place + 1
    return [*out, (word, start, end)] if word else out


def out_of_line(word: str) -> bool:
    """Whether it is a character that is a word by itself."""
    return any(low <= ord(word[0]) < high for low, high in UNSPACED)


def _words(texts: pa.Array) -> Words:
    texts = pc.fill_null(texts, "").cast(pa.large_string())
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = texts.buffers()[2].slice(offsets[0], offsets[-1] - offsets[0]) if texts.buffers()[2] else b""
    code_C = np.frombuffer(bytes(content).decode().encode("utf-32-le"), np.uint32)
    value_C = _table()[np.minimum(code_C, FOLDED - 1)]
    place_C = np.flatnonzero(value_C != SKIPPED)
    value_C = value_C[place_C]
    begin_D = np.concatenate(
        [[0], np.cumsum(pc.call_function("utf8_length", [texts]).to_numpy())]
    )  # in characters, skipped ones too
    is_word = value_C != SEPARATOR
    breaks = (value_C & ALONE).astype(bool)
    breaks[1:] |= ~is_word[:-1] | breaks[:-1]
    in_text = np.searchsorted(place_C, begin_D[:-1])
    breaks[in_text[in_text < len(breaks)]] = True
    start = np.flatnonzero(is_word & breaks)
    end = np.flatnonzero(is_word & np.append(breaks[1:] | ~is_word[1:], True)[: len(is_word)]) + 1
    forward_C, back_C = _powers(len(value_C), WORD_BASE)
    sum_C = np.concatenate([np.zeros(1, np.uint64), np.cumsum((value_C & ~ALONE).astype(np.uint64) * forward_C)])
    document_W = np.searchsorted(begin_D, place_C[start], side="right") - 1
    hash_W = _mixed((sum_C[end] - sum_C[start]) * back_C[start])
    return Words(document_W, place_C[start] - begin_D[document_W], place_C[end - 1] + 1 - begin_D[document_W], hash_W)


def _mixed(hashes: np.ndarray) -> np.ndarray:
    """MurmurHash3's finaliser: sums of powers have weak low bits."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(33))


def _powers(count: int, base: int) -> tuple[np.ndarray, np.ndarray]:
    """base**i and base**-i modulo 2**64."""
    forward, back = _long_powers(base, max(1 << count.bit_length(), 1 << 20))
    return forward[:count], back[:count]


@functools.lru_cache(maxsize=4)
def _long_powers(base: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    steps = [np.full(count, value, np.uint64) for value in (base, pow(base, -1, 1 << 64))]
    for step in steps:
        step[0] = 1
    return np.cumprod(steps[0]), np.cumprod(steps[1])


@functools.cache
def _table() -> np.ndarray:
    """For each character what it folds to: SKIPPED, SEPARATOR, or a letter, with ALONE where it is a word."""
    table = np.fromiter((_fold(chr(code)) for code in range(FOLDED)), np.int32, FOLDED)
    for low, high in UNSPACED:
        table[low:high] |= np.where(table[low:high] > 0, ALONE, 0).astype(np.int32)
    table[FOLDED - 1] = SKIPPED
    return table


def _fold(character: str) -> int:
    kind = unicodedata.category(character)
    if kind[0] == "M" or kind == "Cf":
        return SKIPPED
    if kind[0] not in "LN":
        return SEPARATOR
    simple = "".join(c for c in unicodedata.normalize("NFKD", character).lower() if unicodedata.category(c)[0] != "M")
    return ord(simple if len(simple) == 1 else character)
