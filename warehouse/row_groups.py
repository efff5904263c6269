"""Find the row groups of a table that hold given values.

Rows are looked up many times, a few at a time: for example the documents of every slice of a step,
by id. Without an index, every lookup would read the ids of all documents. So a process indexes a
large table once and keeps the index.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

LARGE = 10_000  # rows; reading fewer takes a few milliseconds
MOST_TABLES = 4  # whose indexes are kept: the most recently used
_reading = threading.Lock()


@dataclass(frozen=True)
class RowGroups:
    """An index from the values of a column to row groups: 12 bytes per row."""

    paths: tuple[Path, ...]
    ends: tuple[int, ...]  # for each path: the number of row groups up to its end
    hashes: np.ndarray  # (N,), of the values of N rows, sorted
    groups: np.ndarray  # (N,), the row group of each hash, numbered across all paths

    @classmethod
    def of(cls, paths: Sequence[Path], column: str) -> RowGroups:
        """Index a column of a table's Parquet files, reading them once.

        The index is valid in this process only, as it uses Python's hashes. Raises OSError or
        pyarrow.ArrowException for a file that cannot be read.
        """
        hashes_of_groups = list[np.ndarray]()
        ends = list[int]()
        for path in paths:
            with pq.ParquetFile(path, pre_buffer=False) as file:
                for group in range(file.num_row_groups):
                    values = file.read_row_group(group, [column]).column(0).to_pylist()
                    hashes_of_groups.append(np.fromiter(map(hash, values), np.int64, len(values)))
            ends.append(len(hashes_of_groups))
        hashes = np.concatenate([np.empty(0, np.int64), *hashes_of_groups])
        groups = np.repeat(
            np.arange(len(hashes_of_groups), dtype=np.uint32),
            [len(some) for some in hashes_of_groups],
        )
        order = np.argsort(hashes)
        return cls(tuple(paths), tuple(ends), hashes[order], groups[order])

    def holding(self, values: Iterable[str]) -> Iterator[tuple[Path, list[int]]]:
        """Yield paths with the row groups in them that may hold one of `values`, in order.

        Because hashes collide, a group may hold none of them.
        """
        wanted = np.array([hash(value) for value in values], np.int64)
        bounds = zip(
            *(np.searchsorted(self.hashes, wanted, side) for side in ("left", "right")), strict=True
        )
        holding = np.unique(
            np.concatenate([self.groups[:0], *(self.groups[first:last] for first, last in bounds)])
        )
        for path, begin, end in zip(self.paths, (0, *self.ends), self.ends, strict=False):
            if groups := [int(group) - begin for group in holding if begin <= group < end]:
                yield path, groups


def row_groups(content_hash: str, num_rows: int, paths: Sequence[Path], column: str) -> RowGroups:
    """Return the index of a table's column.

    Threads that need the same large table share one pass over it.
    """
    if num_rows < LARGE:
        return RowGroups.of(paths, column)
    with _reading:
        return _remembered(content_hash, tuple(paths), column)


@functools.lru_cache(maxsize=MOST_TABLES)
def _remembered(content_hash: str, paths: tuple[Path, ...], column: str) -> RowGroups:
    return RowGroups.of(paths, column)
