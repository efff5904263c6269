"""The band table, and the pairs of documents that it makes candidates.

A shard's rows are in one row group a band, in order of hash, so that a partition (one band, one range of hashes) reads
only its own pages of every shard: the shuffle needs no files of its own, and goes as far as a file system is shared.

Crowds. A bucket of m documents has m(m-1)/2 pairs; text that thousands of documents share would make it the whole
cost. Buckets above `max_bucket` give no pairs: they are handed on as crowds, which are compared through leaders
(`edges.compare_crowds`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.corpus import Shard, sql
from corpus_prep.minhash import MinHashing, band_hashes
from warehouse.corpus_schemas import BANDS
from warehouse.query import out_of_core

PARTITION_ROWS = 1 << 23  # of the band table, read at once
PAIRS = pa.schema([("first", pa.int64()), ("second", pa.int64())])
CROWDS = pa.schema([("bucket", pa.uint64()), ("document", pa.int64())])
BUCKETS, PAIRED, CROWDED = sql("buckets"), sql("pairs"), sql("crowds")
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Partition:
    """One band's rows with hashes in a range, of all shards of the band table. `out` is made a folder."""

    out: Path
    files: tuple[Path, ...]
    band: int
    low: int
    high: int


def write_bands(shard: Shard, settings: MinHashing) -> None:
    """Map: the band table of a shard's documents. Those without shingles are candidates of nothing."""
    numbers, hashes = [np.empty(0, np.int64)], [np.empty((0, settings.num_bands), np.uint64)]
    for batch, texts in shard.texts():
        found, has_shingles = band_hashes(texts, settings)
        numbers.append(batch[has_shingles])
        hashes.append(found[has_shingles])
    documents, values = np.concatenate(numbers), np.concatenate(hashes)
    with pq.ParquetWriter(shard.out, BANDS.arrow, use_dictionary=False, compression="zstd") as writer:
        for band in range(settings.num_bands):
            order = np.argsort(values[:, band])
            column = np.full(len(order), band, np.int32)
            columns = [documents[order], column, values[order, band]]
            writer.write_table(pa.table(columns, schema=BANDS.arrow), row_group_size=len(order) or None)


def partitions(files: Sequence[Path], folder: Path, settings: MinHashing) -> list[Partition]:
    """All partitions of a band table: so many of each band that one fits into memory."""
    rows = sum(pq.read_metadata(file).num_rows for file in files) // settings.num_bands
    cuts = 1 << max(math.ceil(math.log2(max(rows, 1) / PARTITION_ROWS)), 0)
    width = (1 << 64) // cuts
    return [
        Partition(folder / f"candidates-{band:03d}-{cut:05d}", tuple(files), band, cut * width, (cut + 1) * width - 1)
        for band in range(settings.num_bands)
        for cut in range(cuts)
    ]


def find_candidates(partition: Partition, max_bucket: int) -> None:
    """Map: `pairs.parquet` (first < second) of documents in one bucket, `crowds.parquet` of buckets too large for
    that."""
    partition.out.mkdir()
    bounds = {"band": partition.band, "low": partition.low, "high": partition.high}
    with out_of_core(partition.out / "spilled") as connection:
        connection.read_parquet([str(file) for file in partition.files]).create_view("bands")
        connection.execute(f"create table buckets as {BUCKETS}", bounds)
        for name, query, schema in (("pairs", PAIRED, PAIRS), ("crowds", CROWDED, CROWDS)):
            found = connection.sql(query, params={"max_bucket": max_bucket})
            with pq.ParquetWriter(partition.out / f"{name}.parquet", schema) as writer:
                for batch in found.to_arrow_reader(ROWS_AT_ONCE):
                    writer.write_batch(batch.cast(schema))
