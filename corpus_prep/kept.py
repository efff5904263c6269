"""The documents that earlier steps let through, streamed in the order of the corpus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

ROWS_AT_ONCE = 2_048
KEPT = """
    select columns(lambda c: c = 'document' or list_contains($columns, c))
    from (select row_number() over () - 1 as document, * from read_parquet($documents)) as corpus
    where dropped_reason is null
"""
NOT_SCREENED_OUT = """
    and not exists (
        select 1 from read_parquet($screenings) as s where s.document_id = corpus.document_id and not s.kept
    )
"""


def kept_documents(
    documents: Sequence[Path],
    screenings: Sequence[Path] = (),
    columns: Sequence[str] = ("document_id", "title", "text"),
    rows: int = ROWS_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Batches of `document` (its number, the 0-based row of the corpus) and `columns`, of documents that could be read
    and that no screening dropped.

    documents, screenings: Parquet files of the tables `documents` and `screenings` (of any number of steps).
    """
    with duckdb.connect(config={"threads": 1}) as connection:  # one thread keeps the order
        sql, given = KEPT, {"documents": [str(path) for path in documents], "columns": list(columns)}
        if screenings:
            sql, given = KEPT + NOT_SCREENED_OUT, {**given, "screenings": [str(path) for path in screenings]}
        yield from connection.sql(sql, params=given).to_arrow_reader(rows)
