"""Write documents to a Parquet file that `read_corpus` reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENT = pa.schema(
    [(name, pa.string()) for name in ("document_id", "title", "text", "source", "licence")]
)
BATCH = 1_000


def write_documents(path: Path, rows: Iterator[Mapping[str, Any]], licence: str) -> int:
    """Write rows of document_id, text, source and, if they have one, title; returns their
    number."""
    num_rows = 0
    with pq.ParquetWriter(path, DOCUMENT, compression="zstd") as writer:
        while batch := list(itertools.islice(rows, BATCH)):
            documents = [{**row, "licence": licence} for row in batch]
            writer.write_table(pa.Table.from_pylist(documents, DOCUMENT))
            num_rows += len(batch)
    return num_rows
