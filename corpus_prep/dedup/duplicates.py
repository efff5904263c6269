"""Repeated documents: equal texts, and which document of a family of duplicates is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.corpus import Corpus, Shard, sql, view_parquet
from corpus_prep.dedup.shingles import text_hashes
from corpus_prep.workers import Workers, map_shards

Keep = Literal["longest", "first", "best", "newest"]

TEXT_HASHES = pa.schema([("document", pa.int64()), ("high", pa.uint64()), ("low", pa.uint64())])
EQUAL_TEXTS = sql("equal_texts")
KEEP_ONE = sql("keep_one")
SCREEN = sql("screen")
ROWS_AT_ONCE = 1 << 16


def screen_exact(
    corpus: Corpus, keep: Keep, folder: Path, workers: Workers | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `screenings`, in corpus order, that keep one of several equal documents.

    Documents are equal if they have the same words in the same order. Case, punctuation and white
    space do not count, except in texts without words. Partial results in `folder` survive a kill.
    """
    hashes = map_shards(hash_texts, corpus.shards(folder, "text-hashes"), None, workers)
    with corpus.connect(folder) as connection:
        view_parquet(connection, "text_hashes", hashes, TEXT_HASHES)
        connection.execute(f"create table members as {EQUAL_TEXTS}")
        yield from _screen(connection, keep, "exact_duplicate")


def screen_families(
    corpus: Corpus, families: pa.Table, keep: Keep, reason: str, scratch: Path | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of `screenings`: one document of every family is kept.

    The families have the columns document and family, both numbers.
    """
    with corpus.connect(scratch) as connection:
        connection.register("members", families)
        yield from _screen(connection, keep, reason)


def hash_texts(shard: Shard, settings: None) -> None:
    """Map step: numbers and text hashes of a shard's documents, as Parquet."""
    with pq.ParquetWriter(shard.out, TEXT_HASHES) as writer:
        for numbers, texts in shard.texts():
            high, low = text_hashes(texts)
            writer.write_table(pa.table([numbers, high, low], schema=TEXT_HASHES))


def _screen(
    connection: duckdb.DuckDBPyConnection, keep: Keep, reason: str
) -> Iterator[pa.RecordBatch]:
    connection.execute(f"create table duplicates as {KEEP_ONE}", {"keep": keep})
    documents = connection.sql(SCREEN, params={"reason": reason})
    yield from documents.to_arrow_reader(ROWS_AT_ONCE)
