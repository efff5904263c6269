"""Keywords that distinguish a cluster of documents from the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from corpus_prep.corpus import sql
from warehouse.query import out_of_core

CLUSTER_KEYWORDS = sql("cluster_keywords")
CHARS = 2_000  # only this much of each document's beginning is read
NUM_KEYWORDS = 8


def keywords(documents: Sequence[Path], memberships: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Rows of `clusters`, from files of the tables `documents` and `memberships`."""
    parameters = {
        "documents": [str(path) for path in documents],
        "memberships": [str(path) for path in memberships],
        "chars": CHARS,
        "num_keywords": NUM_KEYWORDS,
    }
    with out_of_core() as connection:
        clusters = connection.sql(CLUSTER_KEYWORDS, params=parameters)
        yield from clusters.to_arrow_reader(2_048)
