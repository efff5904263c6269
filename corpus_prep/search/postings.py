"""An inverted index, built on disk: how often each word occurs in which document.

Words are collected in blocks, each sorted and written; then all blocks are read in parallel, a
range of words at a time. Memory holds the vocabulary, one length per document, and one block.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

BLOCK = 1 << 22  # words in a block, and postings read at once
ROW_BITS = 32
ROWS = (1 << 32) - 1


@dataclass(frozen=True)
class Postings:
    """Words in order of their ids, with the documents of each word.

    Documents are in order, each with the word's count in it.
    """

    words: np.ndarray
    rows: np.ndarray
    counts: np.ndarray


class Inverter:
    """Turns documents, added one by one, into postings.

    `vocabulary`: word -> id; `lengths`: words of each document.
    """

    def __init__(self, folder: Path) -> None:
        self.vocabulary: dict[str, int] = {}
        self.lengths = array("i")
        self._folder = folder
        self._num_blocks = 0
        self._ids = array("i")
        self._rows = array("q")
        self._documents = np.zeros(0, np.int64)

    def add(self, words: Sequence[str]) -> None:
        """Add the next document, given its words; a full block is written to disk."""
        ids = [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words]
        self._ids.extend(ids)
        self._rows.extend([len(self.lengths)] * len(ids))
        self.lengths.append(len(ids))
        if len(self._ids) >= BLOCK:
            self._write()

    def finish(self) -> np.ndarray:
        """Write the last block; returns the number of documents that contain each word."""
        self._write()
        return self._documents

    def _write(self) -> None:
        keys = np.asarray(self._ids, np.int64) << ROW_BITS | np.asarray(self._rows, np.int64)
        keys, counts = np.unique(keys, return_counts=True)
        np.save(self._file("keys", self._num_blocks), keys)
        np.save(self._file("counts", self._num_blocks), counts.astype(np.int32))
        documents = np.bincount(keys >> ROW_BITS, minlength=len(self.vocabulary))
        documents[: len(self._documents)] += self._documents
        self._documents = documents
        self._ids = array("i")
        self._rows = array("q")
        self._num_blocks += 1

    def postings(self) -> Iterator[Postings]:
        """All postings, some words at a time.

        A word with more than a block of postings comes alone.
        """
        ends = np.cumsum(self._documents)
        low = 0
        while low < len(ends):
            before = ends[low - 1] if low else 0
            high = max(low + 1, int(np.searchsorted(ends, before + BLOCK, side="right")))
            yield from self._of(low, high)
            low = high

    def _of(self, low: int, high: int) -> Iterator[Postings]:
        parts = (
            self._part(number, low << ROW_BITS, high << ROW_BITS)
            for number in range(self._num_blocks)
        )
        if high == low + 1:  # already sorted: a single word, and blocks in document order
            yield from (_postings(keys, counts) for keys, counts in parts)
            return
        keys, counts = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(keys, kind="stable")
        yield _postings(keys[order], counts[order])

    def _part(self, number: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
        """A range of a block's keys.

        The files are unmapped again, so that what was read does not stay in memory.
        """
        keys, counts = (
            np.load(self._file(name, number), mmap_mode="r") for name in ("keys", "counts")
        )
        start, end = np.searchsorted(keys, (low, high))
        return np.array(keys[start:end]), np.array(counts[start:end])

    def _file(self, name: str, number: int) -> Path:
        return self._folder / f"{name}-{number:05d}.npy"


def _postings(keys: np.ndarray, counts: np.ndarray) -> Postings:
    return Postings(keys >> ROW_BITS, keys & ROWS, counts)
