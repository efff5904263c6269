"""Turn candidates into edges: compare every pair exactly once, and crowds through leaders.

A crowd is a bucket with too many documents to compare all pairs. Its first document leads: all
others are compared with it, and those at or above the threshold leave with it. This repeats until
the rest are few enough for all pairs, or `max_leaders` documents have led; so a document is
compared at most max_leaders times. Documents left after that are compared with all that share one
of their rarest shingles (`corpus_prep.dedup.prefixes`). A pair can still be missed if neither
resembles a leader and they share only text that more than `max_bucket` documents have.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.corpus import Corpus, sql, view_parquet
from corpus_prep.dedup.bands import PAIRS, ROWS_AT_ONCE, find_candidates, partitions
from corpus_prep.dedup.jaccard import OpenSets, ShingleSets, write_sets
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.dedup.prefixes import count_shingles, prefixes
from corpus_prep.workers import Workers, map_shards
from warehouse.query import out_of_core
from warehouse.schemas.corpus import BANDS

log = logging.getLogger("selfplay")
EDGES = pa.schema([*PAIRS, ("jaccard", pa.float64())])
DISTINCT_PAIRS = sql("distinct_pairs")
DUPLICATES = sql("duplicates")
PAIRS_AT_ONCE = 1 << 20


class Comparing(BaseModel):
    """How candidates are compared.

    floor: pairs at or above this Jaccard are stored, so that another threshold needs no new
    comparison.
    max_bucket: the most documents in a bucket for comparing all its pairs.
    max_leaders: rounds over a larger bucket.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    floor: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description=(
            "pairs at or above this Jaccard are stored, so that another threshold needs no"
            " new comparison"
        ),
    )
    max_bucket: PositiveInt = Field(
        default=256,
        description=(
            "maximum number of documents of a bucket of which all pairs are compared: bounds the"
            " time"
        ),
    )
    max_leaders: PositiveInt = Field(
        default=32, description="rounds over a larger bucket: bounds the time"
    )


@dataclass(frozen=True)
class Edges:
    """Parquet files of edges (first, second, jaccard), and counts of the work done.

    Some edges are repeated.
    """

    files: list[Path]
    counts: dict[str, int]


@dataclass(frozen=True)
class Candidates:
    """The pairs of all partitions, to merge into one table."""

    out: Path
    folders: tuple[Path, ...]


@dataclass(frozen=True)
class Comparison:
    """A row group of pairs."""

    out: Path
    pairs: Path
    row_group: int
    sets: ShingleSets


@dataclass(frozen=True)
class Crowds:
    """The crowds of a partition. `out` becomes a folder."""

    out: Path
    crowds: Path
    sets: ShingleSets


def find_edges(
    corpus: Corpus,
    bands: Sequence[Path],
    settings: MinHashing,
    comparing: Comparing,
    folder: Path,
    workers: Workers | None = None,
) -> Edges:
    """Find the pairs of documents that are similar, among those with an equal band.

    `bands` are the files of the corpus's band table, made with `settings`. Pairs of a Jaccard of
    `comparing.floor` or more are edges; the counts say what was compared. Partial results in
    `folder` survive a kill.
    """
    parts = map_shards(
        find_candidates, partitions(bands, folder, settings), comparing.max_bucket, workers
    )
    [pairs] = map_shards(merge_pairs, [Candidates(folder / "pairs", tuple(parts))], None, workers)
    crowds = [
        part / "crowds.parquet"
        for part in parts
        if pq.read_metadata(part / "crowds.parquet").num_rows
    ]
    shards = corpus.shards(folder, "sets", _documents(corpus, [pairs, *crowds]))
    map_shards(write_sets, shards, settings.shingling, workers)
    sets = ShingleSets.of(shards)
    comparisons = [
        Comparison(folder / f"edges-{group:05d}", pairs, group, sets)
        for group in range(pq.read_metadata(pairs).num_row_groups)
    ]
    of_crowds = [Crowds(folder / f"crowd-{path.parent.name}", path, sets) for path in crowds]
    compared = map_shards(compare_pairs, comparisons, comparing, workers)
    led = map_shards(compare_crowds, of_crowds, (comparing, settings.threshold), workers)
    counts = [json.loads((part / "counts.json").read_text()) for part in led]
    totals = {
        name: sum(c[name] for c in counts) for name in ("crowds", "crowd_documents", "pairs_left")
    }
    totals["candidate_pairs"] = pq.read_metadata(pairs).num_rows
    left = np.empty(0, np.int64)
    if led:
        left = np.unique(np.concatenate([np.load(part / "left.npy") for part in led]))
    rejoined = compare_left(left, sets, comparing, settings, folder, workers) if len(left) else []
    totals["documents_compared_by_rare_shingles"] = len(left)
    return Edges([*compared, *(part / "edges.parquet" for part in led), *rejoined], totals)


def compare_left(
    left: np.ndarray,
    sets: ShingleSets,
    comparing: Comparing,
    settings: MinHashing,
    folder: Path,
    workers: Workers | None,
) -> list[Path]:
    """Files of edges among the documents that crowds left uncompared.

    They are found by their rarest shingles, each treated as a separate band.
    """
    log.warning(
        "%d documents share text with more than %d others: they are compared by their rarest"
        " shingles only",
        len(left),
        comparing.max_bucket,
    )
    chosen = np.zeros(sets.num_documents, bool)
    chosen[left] = True
    counts = count_shingles(sets.folders, chosen)
    bands = []
    for number, place in enumerate(sets.folders):
        documents, hashes = prefixes(OpenSets(place), chosen, counts, settings.threshold)
        order = np.argsort(hashes, kind="stable")
        columns = [documents[order], np.zeros(len(order), np.int32), hashes[order]]
        bands.append(folder / f"rare-{number:05d}.parquet")
        pq.write_table(pa.table(columns, schema=BANDS.arrow), bands[-1])
    one_band = settings.model_copy(update={"rows": settings.num_permutations})
    parts = map_shards(
        find_candidates, partitions(bands, folder / "rare", one_band), comparing.max_bucket, workers
    )
    [pairs] = map_shards(
        merge_pairs, [Candidates(folder / "rare-pairs", tuple(parts))], None, workers
    )
    groups = range(pq.read_metadata(pairs).num_row_groups)
    comparisons = [
        Comparison(folder / f"rare-edges-{group:05d}", pairs, group, sets) for group in groups
    ]
    return map_shards(compare_pairs, comparisons, comparing, workers)


def merge_pairs(candidates: Candidates, settings: None) -> None:
    """Map step over a single shard: write the pairs of all partitions in order, each once, as
    PAIRS."""
    spilled = candidates.out.with_name(f"{candidates.out.name}-spilled")
    with out_of_core(spilled) as connection, pq.ParquetWriter(candidates.out, PAIRS) as writer:
        connection.read_parquet(
            [str(part / "pairs.parquet") for part in candidates.folders]
        ).create_view("pairs")
        pairs = connection.sql(DISTINCT_PAIRS)
        for batch in pairs.to_arrow_reader(PAIRS_AT_ONCE):
            writer.write_table(
                pa.Table.from_batches([batch]).cast(PAIRS), row_group_size=PAIRS_AT_ONCE
            )


def compare_pairs(comparison: Comparison, comparing: Comparing) -> None:
    """Map step: write the edges among a row group of pairs, as EDGES."""
    with pq.ParquetFile(comparison.pairs, pre_buffer=False) as file:
        pairs = file.read_row_group(comparison.row_group)
    first, second = (pairs[name].to_numpy() for name in PAIRS.names)
    with pq.ParquetWriter(comparison.out, EDGES) as writer:
        writer.write_table(
            _edges(first, second, comparison.sets.jaccards(first, second), comparing.floor)
        )


def compare_crowds(crowds: Crowds, settings: tuple[Comparing, float]) -> None:
    """Map step: the edges in a partition's crowds (`edges.parquet`).

    It also writes the documents that were not compared (`left.npy`), and counts (`counts.json`).
    """
    comparing, threshold = settings
    table = pq.read_table(crowds.crowds)
    buckets = table["bucket"].to_numpy()
    documents = table["document"].to_numpy()
    starts = np.flatnonzero(np.r_[True, buckets[1:] != buckets[:-1], True])
    remaining = []
    crowds.out.mkdir()
    with pq.ParquetWriter(crowds.out / "edges.parquet", EDGES) as writer:
        for start, end in itertools.pairwise(starts):
            left = documents[start:end]
            for _ in range(comparing.max_leaders):
                if len(left) <= comparing.max_bucket:
                    break
                leaders = np.full(len(left) - 1, left[0])
                others = left[1:]
                jaccards = crowds.sets.jaccards(leaders, others)
                writer.write_table(_edges(leaders, others, jaccards, comparing.floor))
                left = others[jaccards < threshold]
            if len(left) > comparing.max_bucket:
                remaining.append(left)
                continue
            first, second = (left[side] for side in np.triu_indices(len(left), 1))
            writer.write_table(
                _edges(first, second, crowds.sets.jaccards(first, second), comparing.floor)
            )
    left = np.empty(0, np.int64)
    if remaining:
        left = np.unique(np.concatenate(remaining))
    np.save(crowds.out / "left.npy", left)
    pairs_left = sum(len(some) * (len(some) - 1) // 2 for some in remaining)
    counts = {
        "crowds": len(starts) - 1,
        "crowd_documents": len(documents),
        "pairs_left": pairs_left,
    }
    (crowds.out / "counts.json").write_text(json.dumps(counts))


def read_edges(files: Sequence[Path], threshold: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """First and second documents of the edges at or above a Jaccard, in batches."""
    for file in files:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=EDGES.names):
                first, second, jaccard = (batch[name].to_numpy() for name in EDGES.names)
                kept = jaccard >= threshold
                yield first[kept], second[kept]


def ordered_edges(corpus: Corpus, files: Sequence[Path], scratch: Path) -> Iterator[pa.RecordBatch]:
    """Rows of `duplicates`: every edge between the corpus's own documents once, in order."""
    with corpus.connect(scratch / "spilled") as connection:
        view_parquet(connection, "edges", files, EDGES)
        parameters = {"num_documents": corpus.num_documents}
        edges = connection.sql(DUPLICATES, params=parameters)
        yield from edges.to_arrow_reader(ROWS_AT_ONCE)


def _edges(first: np.ndarray, second: np.ndarray, jaccards: np.ndarray, floor: float) -> pa.Table:
    kept = jaccards >= floor
    return pa.table([first[kept], second[kept], jaccards[kept]], schema=EDGES)


def _documents(corpus: Corpus, files: Sequence[Path]) -> np.ndarray:
    """Whether each document is in a pair or a crowd (bool)."""
    in_pairs = np.zeros(corpus.num_documents, bool)
    for file in files:
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(ROWS_AT_ONCE):
                for name in {"first", "second", "document"} & set(batch.schema.names):
                    in_pairs[batch[name].to_numpy()] = True
    return in_pairs
