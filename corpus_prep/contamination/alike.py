"""Find documents that are near-duplicates of a whole passage.

They are found by MinHash, as duplicates are, with exact Jaccard similarities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus_prep.contamination.words import count_words
from corpus_prep.corpus import Corpus, sql, view_parquet
from corpus_prep.dedup.jaccard import jaccards_of_texts
from corpus_prep.dedup.minhash import MinHashing, band_hashes
from warehouse.schemas.corpus import BANDS

PAIRS = sql("alike_pairs")
MIN_WORDS = 13  # in a passage; shorter ones are headings and stock phrases
PAIRS_AT_ONCE = 2_048
KINDS = ("question", "context", "whole")  # answers belong in documents


def find_alike(
    corpus: Corpus, passages: pa.Table, bands: Sequence[Path], settings: MinHashing, folder: Path
) -> Iterator[pa.Table]:
    """Rows of `contaminations` for the rule `minhash`.

    They are pairs at or above the threshold of `settings`. `bands` are the files of the corpus's
    band table, made with the same settings.
    """
    with corpus.connect(folder / "spilled") as connection:
        view_parquet(connection, "bands", bands, BANDS.arrow)
        connection.register("passage_bands", _bands(passages, settings))
        numbered = passages.append_column("number", pa.array(range(passages.num_rows), pa.int64()))
        connection.register("passages", numbered)
        for batch in connection.sql(PAIRS).to_arrow_reader(PAIRS_AT_ONCE):
            alike = jaccards_of_texts(
                batch["document_text"], batch["passage_text"], settings.shingling
            )
            yield _rows(batch, alike, alike >= settings.threshold, passages)


def _bands(passages: pa.Table, settings: MinHashing) -> pa.Table:
    """The band table of the passages to compare: passage (its row), band, hash."""
    is_compared = np.isin(passages["kind"].to_numpy().astype(str), KINDS)
    numbers = np.flatnonzero(is_compared & (count_words(passages["text"]) >= MIN_WORDS))
    hashes, _ = band_hashes(passages["text"].take(numbers).combine_chunks(), settings)
    bands = np.tile(np.arange(settings.num_bands, dtype=np.int32), len(numbers))
    return pa.table(
        {"passage": np.repeat(numbers, settings.num_bands), "band": bands, "hash": hashes.ravel()}
    )


def _rows(
    batch: pa.RecordBatch, alike: np.ndarray, chosen: np.ndarray, passages: pa.Table
) -> pa.Table:
    number = batch["passage"].filter(pa.array(chosen))
    nothing = pa.nulls(len(number))
    columns = {
        "document_id": batch["document_id"].filter(pa.array(chosen)),
        "benchmark": passages["benchmark"].take(number),
        "passage": passages["passage"].take(number),
        "rule": pa.array(["minhash"] * len(number), pa.string()),
        "share": alike[chosen],
        "removes": pa.array([True] * len(number), pa.bool_()),
    }
    return pa.table({**columns, "start": nothing, "end": nothing, "text": nothing})
