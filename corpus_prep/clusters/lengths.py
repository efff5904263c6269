"""Lengths of documents in tokens, and the members of clusters with their lengths.

Lengths are counted shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.clusters.segments import Count
from corpus_prep.corpus import Shard, sql
from warehouse.query import out_of_core
from warehouse.schemas.corpus import LENGTHS

MEMBERS = sql("cluster_members")
ROWS_AT_ONCE = 1 << 14


def write_lengths(shard: Shard, count: Count) -> None:
    """Map step: write rows of `lengths` for a shard's documents.

    `count` returns the number of tokens of a text.
    """
    with pq.ParquetWriter(shard.out, LENGTHS.arrow, compression="zstd") as writer:
        for _, batch in shard.batches(["document_id", "text"]):
            counts = [count(text) for text in batch["text"].to_pylist()]
            writer.write_table(
                pa.table([batch["document_id"], pa.array(counts, pa.int32())], schema=LENGTHS.arrow)
            )


def members(memberships: Sequence[Path], lengths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """document_id, cluster and num_tokens of all clustered documents.

    They come cluster by cluster, the most similar first.
    """
    files = {
        "memberships": [str(path) for path in memberships],
        "lengths": [str(path) for path in lengths],
    }
    with out_of_core() as connection:
        yield from connection.sql(MEMBERS, params=files).to_arrow_reader(ROWS_AT_ONCE)
