"""The documents that enter a step: Parquet files of a `documents` table, and which rows count.

A document's number is its 0-based row across all files. Work is divided into shards: row groups of
one file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.query import out_of_core
from warehouse.schemas.corpus import SCREENINGS

# limits of one shard: bytes of decoded columns, and documents
SHARD_BYTES = 1 << 27
SHARD_DOCUMENTS = 1 << 16
BATCH_BYTES = 1 << 24  # documents in memory at once


def sql(name: str) -> str:
    """The text of the query `corpus_prep/sql/<name>.sql`.

    Modules read it into a constant, so that it is part of a stage's recipe. Raises
    FileNotFoundError if there is none.
    """
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text(encoding="utf-8")


NUMBERED = sql("documents")
COUNTING = sql("counting")


@dataclass(frozen=True)
class Shard:
    """Neighbouring documents: the unit of map work.

    `counts` (bool, one per row) says which of them to read.
    """

    out: Path
    file: Path
    row_groups: tuple[int, ...]
    first: int
    counts: np.ndarray

    def texts(self) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """Numbers (int64) and texts of the documents that count, a few MB at a time."""
        for numbers, batch in self.batches(["text"]):
            yield numbers, batch.column(0)

    def batches(self, columns: list[str]) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """Numbers and the given columns of the documents that count, a few MB at a time."""
        with pq.ParquetFile(self.file, pre_buffer=False) as file:
            groups = [file.metadata.row_group(group) for group in self.row_groups]
            row_bytes = (
                sum(g.total_byte_size for g in groups) // max(sum(g.num_rows for g in groups), 1)
                + 1
            )
            at = 0
            for batch in file.iter_batches(
                max(BATCH_BYTES // row_bytes, 1), list(self.row_groups), columns
            ):
                rows = np.flatnonzero(self.counts[at : at + batch.num_rows])
                if len(rows):
                    counted = batch
                    if len(rows) < batch.num_rows:
                        counted = batch.take(pa.array(rows))
                    yield self.first + at + rows, counted
                at += batch.num_rows


@dataclass(frozen=True)
class Corpus:
    """Files of documents, and of earlier steps' screenings.

    Documents that a screening did not keep do not count.
    """

    files: tuple[Path, ...]
    screenings: tuple[Path, ...] = ()

    @cached_property
    def firsts(self) -> np.ndarray:
        """The number of each file's first document, and at the end the number of documents."""
        return np.cumsum([0, *(pq.read_metadata(file).num_rows for file in self.files)])

    @property
    def num_documents(self) -> int:
        return int(self.firsts[-1])

    @cached_property
    def counts(self) -> np.ndarray:
        """Whether each document counts (bool, one per document)."""
        present = np.zeros(self.num_documents, bool)
        with self.connect() as connection:
            for batch in connection.sql(COUNTING).to_arrow_reader():
                present[batch.column(0).to_numpy()] = True
        return present

    def connect(self, scratch: Path | None = None) -> duckdb.DuckDBPyConnection:
        """DuckDB with the views `documents` and `screenings`.

        `documents` has all columns, and the number as `document`.
        """
        connection = out_of_core(scratch)
        names = [str(file) for file in self.files]
        connection.read_parquet(names, file_row_number=True, filename=True).create_view(
            "document_rows"
        )
        connection.register(
            "files", pa.table({"filename": names, "first_number": self.firsts[:-1]})
        )
        connection.execute(NUMBERED)
        view_parquet(connection, "screenings", self.screenings, SCREENINGS.arrow)
        return connection

    def shards(self, folder: Path, name: str, only: np.ndarray | None = None) -> list[Shard]:
        """Shards with outputs `folder/name-00000`, ..., over the documents that count.

        If `only` (bool) is given, a document must also be in it.
        """
        counts = self.counts if only is None else self.counts & only
        spans = [span for file in range(len(self.files)) for span in self._spans(file)]
        return [
            Shard(
                folder / f"{name}-{number:05d}",
                self.files[file],
                groups,
                first,
                counts[first : first + rows],
            )
            for number, (file, groups, first, rows) in enumerate(spans)
            if counts[first : first + rows].any()
        ]

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The documents that count, in order, a few MB at a time."""
        for shard in self.shards(Path(), "read only"):
            yield from (batch for _, batch in shard.batches(columns))

    def _spans(self, file: int) -> Iterator[tuple[int, tuple[int, ...], int, int]]:
        """The shards of a file.

        Each is the file, row groups, the number of the first document, and the number of rows.
        """
        metadata = pq.read_metadata(self.files[file])
        first = int(self.firsts[file])
        groups = []
        rows = 0
        size = 0
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            too_large = (
                size + group.total_byte_size > SHARD_BYTES
                or rows + group.num_rows > SHARD_DOCUMENTS
            )
            if groups and too_large:
                yield file, tuple(groups), first, rows
                first = first + rows
                groups = []
                rows = 0
                size = 0
            groups.append(number)
            rows = rows + group.num_rows
            size = size + group.total_byte_size
        if rows:
            yield file, tuple(groups), first, rows


def view_parquet(
    connection: duckdb.DuckDBPyConnection, name: str, files: Sequence[Path], schema: pa.Schema
) -> None:
    """Name a view over the rows of Parquet files; without files it is empty."""
    if files:
        connection.read_parquet([str(file) for file in files]).create_view(name)
    else:
        connection.register(name, schema.empty_table())
