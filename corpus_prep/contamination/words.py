"""Hash the words of texts, straight from Arrow's buffers; n-grams are compared by these hashes.

A word is a run of letters and digits, folded: compatibility forms of one letter, accents and case
do not count. Compatibility forms of several letters, such as the ligature ﬁ and the fraction ½,
stay as they are. In scripts written without spaces (`corpus_prep.scripts`) each character is a
word. Every character folds to at most one other, so one pass gives both a word's hash and its place
in the text.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from corpus_prep.dedup.units import byte_length, mix
from corpus_prep.scripts import UNSPACED

MAX_BYTES = 1 << 20  # bytes of text processed at once, which take 32 MiB of arrays
FOLDED = 0x30000  # characters from here on (private use, tags) are skipped
# entries of the folding table: ignored, between words, a word by itself
SKIPPED = -1
SEPARATOR = 0
ALONE = 1 << 24
# FNV-1a's
SEED = np.uint64(0xCBF29CE484222325)
PRIME = np.uint64(0x100000001B3)
WEIGHT = np.uint64(0x9E3779B97F4A7C15)


class Words(NamedTuple):
    """Words of texts, in order: each with its text (0-based), first and one past last character,
    and folded hash."""

    document: np.ndarray
    start: np.ndarray
    end: np.ndarray
    hash: np.ndarray


def words(texts: pa.Array | pa.ChunkedArray) -> Iterator[Words]:
    """The words of the texts, in batches of whole texts of about MAX_BYTES. A null counts as an
    empty text."""
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    first = 0
    for chunk in chunks:
        chunk = pc.fill_null(chunk.cast(pa.large_string()), "")
        offsets = np.frombuffer(chunk.buffers()[1], np.int64)[
            chunk.offset : chunk.offset + len(chunk) + 1
        ]
        content = np.frombuffer(chunk.buffers()[2] or b"", np.uint8)
        start = 0
        while start < len(chunk):
            stop = max(
                start + 1,
                int(np.searchsorted(offsets, offsets[start] + MAX_BYTES, side="right")) - 1,
            )
            most = int(offsets[stop] - offsets[start])  # every word has at least one byte
            columns = Words(
                *(np.empty(most, kind) for kind in (np.int64, np.int64, np.int64, np.uint64))
            )
            count = _find_words(
                content, offsets[start : stop + 1], _table(), first + start, *columns
            )
            yield Words(*(column[:count] for column in columns))
            start = stop
        first += len(chunk)


def count_words(texts: pa.ChunkedArray) -> np.ndarray:
    """The number of words in each text (int64)."""
    counts = np.zeros(len(texts), np.int64)
    for batch in words(texts):
        counts += np.bincount(batch.document, minlength=len(texts))
    return counts


def grams(batch: Words, n: int) -> tuple[np.ndarray, np.ndarray]:
    """All runs of n words within one text: the hash of each, and the index in `batch` of its
    first word."""
    count = max(len(batch.hash) - n + 1, 0)
    first = np.flatnonzero(batch.document[:count] == batch.document[len(batch.document) - count :])
    return _hash_runs(batch.hash, first, n), first


@functools.cache
def _table() -> np.ndarray:
    """The fold of each character: SKIPPED, SEPARATOR, or a letter, with ALONE if it is a word."""
    table = np.fromiter((_fold(chr(code)) for code in range(FOLDED)), np.int32, FOLDED)
    for low, high in UNSPACED:
        table[low : high + 1] |= np.where(table[low : high + 1] > 0, ALONE, 0).astype(np.int32)
    table[FOLDED - 1] = SKIPPED
    return table


def _fold(character: str) -> int:
    kind = unicodedata.category(character)
    if kind[0] == "M" or kind == "Cf":
        return SKIPPED
    if kind[0] not in "LN":
        return SEPARATOR
    simple = "".join(
        c
        for c in unicodedata.normalize("NFKD", character).lower()
        if unicodedata.category(c)[0] != "M"
    )
    if len(simple) == 1:
        return ord(simple)
    return ord(character)


@njit(cache=True, nogil=True)
def _find_words(content, offsets, table, first, document, start, end, hashes):
    """Fill the columns with the words of texts numbered from `first`; returns the number of
    words."""
    count = 0
    for text in range(len(offsets) - 1):
        at = offsets[text]
        place = 0
        value = SEED
        is_open = False
        is_alone = False
        while at < offsets[text + 1]:
            byte = np.int64(content[at])
            length = byte_length(byte)
            code = byte if length == 1 else byte & (0x7F >> length)
            for i in range(1, length):
                code = code << 6 | np.int64(content[at + i]) & 0x3F
            fold = table[min(code, FOLDED - 1)]
            if fold != SKIPPED:
                if is_open and (fold == SEPARATOR or is_alone or fold & ALONE):
                    hashes[count] = mix(value)
                    count += 1
                    is_open = False
                if fold != SEPARATOR:
                    if not is_open:
                        document[count] = first + text
                        start[count] = place
                        value = SEED
                        is_open = True
                        is_alone = fold & ALONE != 0
                    value = (value ^ np.uint64(fold & ~ALONE)) * PRIME
                    end[count] = place + 1
            at += length
            place += 1
        if is_open:
            hashes[count] = mix(value)
            count += 1
    return count


@njit(cache=True, nogil=True)
def _hash_runs(hashes, first, n):
    runs = np.empty(len(first), np.uint64)
    for run in range(len(first)):
        total = np.uint64(n)
        for i in range(first[run], first[run] + n):
            total = total * WEIGHT + hashes[i]
        runs[run] = mix(total)
    return runs
