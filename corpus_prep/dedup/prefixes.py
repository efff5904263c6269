"""The rarest shingles of documents, of which similar documents must share at least one.

Prefix filter (Chaudhuri, Ganti and Kaushik 2006): if a set holds a share t of a set x, then it has
at least one of the first |x| - ceil(t |x|) + 1 shingles of x, in any fixed order of all shingles.
Here the order is by how many documents have a shingle, so text that thousands share comes last.
Shingles are counted in slots, by the first bits of their hashes. Those that share a slot are
counted together, which changes the order in the same way for all documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numba import njit

from corpus_prep.dedup.jaccard import OpenSets

SLOT_BITS = 24
SHIFT = np.uint64(64 - SLOT_BITS)
# a shingle's sort key: its count, then bits of its hash
COUNT_SHIFT = np.uint64(40)
MOST = np.uint32((1 << 24) - 1)


def count_shingles(folders: Sequence[Path], chosen: np.ndarray) -> np.ndarray:
    """For each slot, how often the chosen documents have one of its shingles (uint32).

    `chosen` has a bool for each document's number.
    """
    counts = np.zeros(1 << SLOT_BITS, np.uint32)
    for folder in folders:
        sets = OpenSets(folder)
        _count(sets.hashes, sets.offsets, chosen[sets.documents], counts)
    return counts


def prefixes(
    sets: OpenSets, chosen: np.ndarray, counts: np.ndarray, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Documents (int64) and the hashes (uint64) of their rarest shingles, pair by pair.

    `chosen` (bool, by number) says which documents of `sets` to take, and `counts` are those of
    `count_shingles`. Of a document's n shingles it takes the n - ceil(share * n) + 1 rarest, so
    that documents whose Jaccard is `share` or more have one of these in common. Shingles in only
    one document are left out.
    """
    size = int((sets.offsets[1:] - sets.offsets[:-1])[chosen[sets.documents]].sum())
    documents = np.empty(size, np.int64)
    hashes = np.empty(size, np.uint64)
    rows = chosen[sets.documents]
    num = _prefixes(
        sets.hashes, sets.offsets, rows, sets.documents, counts, share, documents, hashes
    )
    return documents[:num], hashes[:num]


@njit(cache=True, nogil=True)
def _count(hashes, offsets, rows, counts):
    for row in range(len(rows)):
        if rows[row]:
            for at in range(offsets[row], offsets[row + 1]):
                slot = hashes[at] >> SHIFT
                counts[slot] = min(counts[slot] + np.uint32(1), MOST)


@njit(cache=True, nogil=True)
def _prefixes(hashes, offsets, rows, numbers, counts, share, documents, prefixes):
    num = 0
    for row in range(len(rows)):
        own = hashes[offsets[row] : offsets[row + 1]]
        if not rows[row] or not len(own):
            continue
        keys = np.empty(len(own), np.uint64)
        for i in range(len(own)):
            keys[i] = np.uint64(counts[own[i] >> SHIFT]) << COUNT_SHIFT | own[i] >> np.uint64(24)
        order = np.argsort(keys)
        for place in order[: len(own) - int(np.ceil(share * len(own) - 1e-9)) + 1]:
            if counts[own[place] >> SHIFT] > 1:
                documents[num] = numbers[row]
                prefixes[num] = own[place]
                num += 1
    return num
