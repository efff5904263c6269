"""Exact Jaccard similarities of documents, from their sets of shingles on disk.

The sets hold 64-bit hashes: for a pair of documents of a thousand shingles each, the probability
that two different shingles collide is about 1e-13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numba import njit

from corpus_prep.corpus import Shard
from corpus_prep.dedup.shingles import Shingling, shingle_sets

Compare = Callable[..., np.ndarray]
HASHES = "hashes.u64"
DOCUMENTS = "documents.npy"
OFFSETS = "offsets.npy"


@dataclass(frozen=True)
class ShingleSets:
    """The sets of many documents, in the folders of shards.

    `firsts` holds each shard's first document, ascending.

    A shard is mapped into memory only while its pairs are compared, so memory does not grow with
    the number of shards.
    """

    folders: tuple[Path, ...]
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, shards: Sequence[Shard]) -> ShingleSets:
        """The sets that `write_sets` wrote for these shards, which are in ascending order of
        documents."""
        return cls(tuple(shard.out for shard in shards), tuple(shard.first for shard in shards))

    @property
    def num_documents(self) -> int:
        """One more than the number of the last document."""
        return max(
            (int(OpenSets(folder).documents.max(initial=-1)) + 1 for folder in self.folders[-1:]),
            default=0,
        )

    def jaccards(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The Jaccard similarity (float64) of P pairs, given by document numbers (int64, P each).

        Every document must have a set.
        """
        return self._compared(first, second, _jaccards)

    def containments(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The share of the first document's shingles that the second has, for P pairs (float64)."""
        return self._compared(first, second, _containments)

    def _compared(self, first: np.ndarray, second: np.ndarray, compare: Compare) -> np.ndarray:
        shard_one, shard_other = (
            np.searchsorted(self.firsts, side, "right") - 1 for side in (first, second)
        )
        order = np.lexsort((shard_other, shard_one))
        turns = np.flatnonzero(np.diff(shard_one[order]) | np.diff(shard_other[order])) + 1
        similarities = np.empty(len(first))
        open_shard = -1
        one = None
        for run in np.split(order, turns) if len(order) else []:
            shard = shard_one[run[0]]
            shard_too = shard_other[run[0]]
            if one is None or shard != open_shard:
                open_shard = shard
                one = OpenSets(self.folders[shard])
            other = one if shard == shard_too else OpenSets(self.folders[shard_too])
            rows = one.rows(first[run])
            other_rows = other.rows(second[run])
            similarities[run] = compare(
                one.hashes, one.offsets, rows, other.hashes, other.offsets, other_rows
            )
        return similarities


class OpenSets:
    """A shard's sets: `documents` (int64, ascending), `offsets` (int64, one more) and `hashes`
    (uint64, mapped from disk)."""

    def __init__(self, folder: Path) -> None:
        self.documents = np.load(folder / DOCUMENTS)
        self.offsets = np.load(folder / OFFSETS)
        is_empty = self.offsets[-1] == 0
        self.hashes = np.empty(0, np.uint64)
        if not is_empty:  # an empty file cannot be mapped
            self.hashes = np.asarray(np.memmap(folder / HASHES, np.uint64, "r"))

    def rows(self, documents: np.ndarray) -> np.ndarray:
        """Where the sets of documents are (int64, one for each): set r is
        hashes[offsets[r] : offsets[r + 1]]. All documents must be of this shard.
        """
        return np.searchsorted(self.documents, documents)


def write_sets(shard: Shard, shingling: Shingling) -> None:
    """Map step: the sets of a shard's documents."""
    shard.out.mkdir()
    numbers = [np.empty(0, np.int64)]
    sizes = [np.zeros(1, np.int64)]
    with open(shard.out / HASHES, "wb") as file:
        for batch, texts in shard.texts():
            sets = shingle_sets(texts, shingling)
            sets.hashes.tofile(file)
            numbers.append(batch)
            sizes.append(np.diff(sets.offsets))
    np.save(shard.out / DOCUMENTS, np.concatenate(numbers))
    np.save(shard.out / OFFSETS, np.cumsum(np.concatenate(sizes)))


def jaccards_of_texts(texts: pa.Array, others: pa.Array, shingling: Shingling) -> np.ndarray:
    """The similarity (float64) of each text with the other text at the same index."""
    one = shingle_sets(texts, shingling)
    other = shingle_sets(others, shingling)
    rows = np.arange(len(texts))
    return _jaccards(one.hashes, one.offsets, rows, other.hashes, other.offsets, rows)


@njit(cache=True, nogil=True)
def _in_both(hashes, offsets, row, other_hashes, other_offsets, other_row):
    """The number of hashes that two sets share."""
    one = offsets[row]
    one_end = offsets[row + 1]
    other = other_offsets[other_row]
    other_end = other_offsets[other_row + 1]
    both = 0
    while one < one_end and other < other_end:
        a = hashes[one]
        b = other_hashes[other]
        both += a == b
        one += a <= b
        other += b <= a
    return both


@njit(cache=True, nogil=True)
def _jaccards(hashes, offsets, rows, other_hashes, other_offsets, other_rows):
    similarities = np.empty(len(rows))
    for pair in range(len(rows)):
        row = rows[pair]
        other = other_rows[pair]
        both = _in_both(hashes, offsets, row, other_hashes, other_offsets, other)
        total = offsets[row + 1] - offsets[row] + other_offsets[other + 1] - other_offsets[other]
        similarities[pair] = both / (total - both) if total else 0.0
    return similarities


@njit(cache=True, nogil=True)
def _containments(hashes, offsets, rows, other_hashes, other_offsets, other_rows):
    shares = np.empty(len(rows))
    for pair in range(len(rows)):
        both = _in_both(hashes, offsets, rows[pair], other_hashes, other_offsets, other_rows[pair])
        size = offsets[rows[pair] + 1] - offsets[rows[pair]]
        shares[pair] = both / size if size else 0.0
    return shares
