"""Measurements of a search for duplicates, from its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from corpus_prep.corpus import sql, view_parquet
from corpus_prep.dedup.canaries import CANARIES
from corpus_prep.dedup.edges import ROWS_AT_ONCE
from warehouse.query import out_of_core
from warehouse.schemas.corpus import DUPLICATES, SCREENINGS

BINS = np.linspace(0, 1, 21)  # the last one holds 1 itself
CHAINED = sql("chained")


def jaccard_histogram(files: Sequence[Path]) -> Iterator[tuple[float, int]]:
    """The number of pairs in each bin of Jaccard, 0.05 wide, by the bin's lower end.

    Empty bins are left out.
    """
    counts = np.zeros(len(BINS) - 1, np.int64)
    for file in files:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=["jaccard"]):
                counts += _histogram(batch["jaccard"].to_numpy())
    return (
        (float(start), int(count)) for start, count in zip(BINS[:-1], counts, strict=True) if count
    )


def canary_recall(file: Path, threshold: float) -> Iterator[tuple[str, float]]:
    """The number of canaries at or above a Jaccard and the share that was found.

    Then that share in bins of 0.05.
    """
    canaries = pq.read_table(file, schema=CANARIES)
    jaccards = canaries["jaccard"].to_numpy()
    is_detected = canaries["found"].to_numpy()
    counted = jaccards >= threshold
    yield "canaries", float(counted.sum())
    if counted.any():
        yield "canary_recall", float(is_detected[counted].mean())
    planted = _histogram(jaccards)
    seen = _histogram(jaccards[is_detected])
    for start, number, hits in zip(BINS[:-1], planted, seen, strict=True):
        if number:
            yield f"canary_recall from {start:.2f}", hits / number


def count_chained(screenings: Sequence[Path], duplicates: Sequence[Path], threshold: float) -> int:
    """Documents dropped in favour of one that they are connected to only through others."""
    with out_of_core() as connection:
        view_parquet(connection, "screened", screenings, SCREENINGS.arrow)
        view_parquet(connection, "duplicates", duplicates, DUPLICATES.arrow)
        return connection.sql(CHAINED, params={"threshold": threshold}).fetchall()[0][0]


def _histogram(jaccards: np.ndarray) -> np.ndarray:
    """Counts in BINS; rounding keeps 0.85 out of the bin below it."""
    return np.histogram(np.round(jaccards, 9), np.round(BINS, 9))[0]
