"""The band table, and the candidate pairs of documents that it yields.

A shard writes one row group per band, sorted by hash. A partition is several bands, or a range of
one band's hashes, and reads only its own pages of every shard. So the shuffle needs no further
files and works wherever the file system is shared.

Crowds. A bucket of m documents has m(m-1)/2 pairs, so text that thousands of documents share would
dominate the cost. Buckets above `max_bucket` yield no pairs but become crowds, which are compared
through leaders (`edges.compare_crowds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.corpus import Shard, sql
from corpus_prep.dedup.minhash import MinHashing, band_hashes
from warehouse.query import out_of_core
from warehouse.schemas.corpus import BANDS

PARTITION_ROWS = 1 << 23  # rows of the band table in memory at once
PAIRS = pa.schema([("first", pa.int64()), ("second", pa.int64())])
CROWDS = pa.schema([("bucket", pa.uint64()), ("document", pa.int64())])
BUCKETS = sql("buckets")
PAIRED = sql("pairs")
CROWDED = sql("crowds")
ROWS_AT_ONCE = 1 << 16
FORMAT: Any = {  # hashes do not compress; document numbers share their upper bytes
    "use_dictionary": False,
    "compression": {"document": "zstd", "band": "zstd", "hash": "none"},
    "column_encoding": {"document": "BYTE_STREAM_SPLIT", "band": "PLAIN", "hash": "PLAIN"},
}


@dataclass(frozen=True)
class Partition:
    """A range of bands and a range of hashes, both inclusive, over all shards of the band table.

    `out` becomes a folder.
    """

    out: Path
    files: tuple[Path, ...]
    bands: tuple[int, int]
    hashes: tuple[int, int]


def write_bands(shard: Shard, settings: MinHashing) -> None:
    """Map step: the band table of a shard's documents.

    Documents without shingles are left out: they match nothing.
    """
    numbers = [np.empty(0, np.int64)]
    hashes = [np.empty((0, settings.num_bands), np.uint64)]
    for batch, texts in shard.texts():
        bands, has_shingles = band_hashes(texts, settings)
        numbers.append(batch[has_shingles])
        hashes.append(bands[has_shingles])
    documents = np.concatenate(numbers)
    values = np.concatenate(hashes)
    with pq.ParquetWriter(shard.out, BANDS.arrow, **FORMAT) as writer:
        for band in range(settings.num_bands):
            order = np.argsort(values[:, band])
            column = np.full(len(order), band, np.int32)
            columns = [documents[order], column, values[order, band]]
            writer.write_table(
                pa.table(columns, schema=BANDS.arrow), row_group_size=len(order) or None
            )


def partitions(files: Sequence[Path], folder: Path, settings: MinHashing) -> list[Partition]:
    """All partitions of a band table, each of a size that fits in memory.

    A partition is several bands, or a part of one.
    """
    rows = max(sum(pq.read_metadata(file).num_rows for file in files) // settings.num_bands, 1)
    together = max(PARTITION_ROWS // rows, 1)
    cuts = -(-rows // PARTITION_ROWS)
    bounds = [cut * (1 << 64) // cuts for cut in range(cuts + 1)]
    return [
        Partition(
            folder / f"candidates-{first:03d}-{cut:05d}",
            tuple(files),
            (first, min(first + together, settings.num_bands) - 1),
            (bounds[cut], bounds[cut + 1] - 1),
        )
        for first in range(0, settings.num_bands, together)
        for cut in range(cuts)
    ]


def find_candidates(partition: Partition, max_bucket: int) -> None:
    """Map step: write the pairs of documents in one bucket, and the crowds.

    `pairs.parquet` has the pairs (first < second), `crowds.parquet` the buckets too large for
    pairs.
    """
    partition.out.mkdir()
    first_band, last_band = partition.bands
    low, high = partition.hashes
    bounds = {"first_band": first_band, "last_band": last_band, "low": low, "high": high}
    with out_of_core(partition.out / "spilled") as connection:
        connection.read_parquet([str(file) for file in partition.files]).create_view("bands")
        connection.execute(f"create table buckets as {BUCKETS}", bounds)
        for name, query, schema in (("pairs", PAIRED, PAIRS), ("crowds", CROWDED, CROWDS)):
            candidates = connection.sql(query, params={"max_bucket": max_bucket})
            with pq.ParquetWriter(partition.out / f"{name}.parquet", schema) as writer:
                for batch in candidates.to_arrow_reader(ROWS_AT_ONCE):
                    writer.write_batch(batch.cast(schema))
