"""Contained documents: all or most of their shingles are also in a longer document.

Jaccard similarity misses them: for a page quoted whole in a book it is close to zero. A candidate
pair is a document and a longer one that has one of its rarest shingles
(`corpus_prep.dedup.prefixes`); shares are exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.corpus import Corpus, sql, view_parquet
from corpus_prep.dedup.jaccard import OpenSets, ShingleSets, write_sets
from corpus_prep.dedup.prefixes import SHIFT, count_shingles, prefixes
from corpus_prep.dedup.shingles import Shingling
from corpus_prep.workers import Workers, map_shards
from warehouse.query import out_of_core
from warehouse.schemas.corpus import CONTAINMENTS as CONTAINED

HELD = pa.schema([("document", pa.int64()), ("holder", pa.int64()), ("share", pa.float64())])
SHINGLES = pa.schema([("document", pa.int64()), ("hash", pa.uint64()), ("size", pa.int64())])
CANDIDATES = sql("containment_candidates")
FOUND = sql("containments")
NUMBERED_HELD = sql("contained")
SCREEN = sql("screen")
ROWS_AT_ONCE = 1 << 16
MIN_SHINGLES = 20  # of a document that may be contained: shorter ones are quoted everywhere


class Containment(BaseModel):
    """When a document counts as contained in another."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="minimum share of a document's shingles that the other document contains",
    )
    max_holders: PositiveInt = Field(
        default=64, description="documents compared per shingle: those with the most shingles"
    )
    common: PositiveInt = Field(
        default=100, description="a shingle in more documents than this is boilerplate"
    )
    shingling: Shingling = Shingling()


@dataclass(frozen=True)
class Part:
    """The sets of a shard, and what to search them for."""

    out: Path
    folder: Path
    counts: Path


def find_containments(
    corpus: Corpus, settings: Containment, folder: Path, workers: Workers | None, counts_file: Path
) -> Iterator[pa.RecordBatch]:
    """Rows of `containments`: contained documents, each with a document that holds it and stays.

    Partial results in `folder` survive a kill. counts_file: where to write the counts of
    boilerplate, as JSON.
    """
    shards = corpus.shards(folder, "sets")
    map_shards(write_sets, shards, settings.shingling, workers)
    folders = tuple(shard.out for shard in shards)
    counts = count_shingles(folders, corpus.counts)
    np.save(folder / "counts.npy", counts)
    parts = [
        Part(folder / f"rare-{n:05d}", sets, folder / "counts.npy")
        for n, sets in enumerate(folders)
    ]
    rare = map_shards(write_rare, parts, settings, workers)
    wanted = [Part(folder / f"holders-{n:05d}", sets, folder) for n, sets in enumerate(folders)]
    holders = map_shards(write_holders, wanted, tuple(rare), workers)
    contained = _held(ShingleSets.of(shards), _pairs(rare, holders, settings, folder), settings)
    pq.write_table(contained, folder / "held.parquet")
    counts_file.write_text(json.dumps(_boilerplate(folders, counts, settings.common)))
    with corpus.connect(folder / "spilled") as connection:
        connection.register("held", contained)
        yield from connection.sql(FOUND).to_arrow_reader(ROWS_AT_ONCE)


def screen_held(corpus: Corpus, files: Sequence[Path], scratch: Path) -> Iterator[pa.RecordBatch]:
    """Yield rows of `screenings`, in corpus order, that drop the contained documents.

    `files` are those of `containments`. Queries spill to a folder in `scratch`.
    """
    with corpus.connect(scratch / "spilled") as connection:
        view_parquet(connection, "containments", files, CONTAINED.arrow)
        connection.execute(f"create table duplicates as {NUMBERED_HELD}")
        yield from connection.sql(SCREEN, params={"reason": "contained"}).to_arrow_reader(
            ROWS_AT_ONCE
        )


def write_rare(part: Part, settings: Containment) -> None:
    """Map step: the rarest shingles of every document that is long enough, as SHINGLES."""
    sets = OpenSets(part.folder)
    counts = np.load(part.counts, mmap_mode="r")
    sizes = np.diff(sets.offsets)
    chosen = np.zeros(sets.documents.max(initial=-1) + 1, bool)
    chosen[sets.documents[sizes >= MIN_SHINGLES]] = True
    documents, hashes = prefixes(sets, chosen, counts, settings.share)
    pq.write_table(
        pa.table([documents, hashes, sizes[sets.rows(documents)]], schema=SHINGLES), part.out
    )


def write_holders(part: Part, rare: tuple[Path, ...]) -> None:
    """Map step: the documents that have any of these rarest shingles (files of SHINGLES)."""
    wanted = np.unique(
        np.concatenate([pq.read_table(file, columns=["hash"])["hash"].to_numpy() for file in rare])
    )
    sets = OpenSets(part.folder)
    slots = np.zeros(1 << 24, bool)
    slots[wanted >> SHIFT] = True
    at = np.flatnonzero(slots[sets.hashes >> SHIFT])
    place = np.minimum(np.searchsorted(wanted, sets.hashes[at]), max(len(wanted) - 1, 0))
    at = at[wanted[place] == sets.hashes[at]] if len(wanted) else at[:0]
    row = np.searchsorted(sets.offsets, at, "right") - 1
    columns = [sets.documents[row], sets.hashes[at], np.diff(sets.offsets)[row]]
    pq.write_table(pa.table(columns, schema=SHINGLES), part.out)


def _pairs(
    rare: Sequence[Path], holders: Sequence[Path], settings: Containment, folder: Path
) -> pa.Table:
    """Columns document and holder, ordered by document.

    The holder is longer, or as long and earlier.
    """
    with out_of_core(folder / "spilled") as connection:
        connection.read_parquet([str(file) for file in rare]).create_view("rare")
        connection.read_parquet([str(file) for file in holders]).create_view("holders")
        return connection.sql(
            CANDIDATES, params={"max_holders": settings.max_holders}
        ).to_arrow_table()


def _held(sets: ShingleSets, pairs: pa.Table, settings: Containment) -> pa.Table:
    """Walk from the longest document to the shortest.

    A document is dropped in favour of the first one that holds it and stays.
    """
    document = pairs["document"].to_numpy()
    holder = pairs["holder"].to_numpy()
    share = sets.containments(document, holder)
    enough = share >= settings.share - 1e-9
    gone: dict[int, tuple[int, float]] = {}
    for one, other, part in zip(
        document[enough].tolist(), holder[enough].tolist(), share[enough].tolist(), strict=True
    ):
        if one not in gone and other not in gone:
            gone[one] = other, part
    rows = [
        {"document": one, "holder": other, "share": part}
        for one, (other, part) in sorted(gone.items())
    ]
    return pa.Table.from_pylist(rows, schema=HELD)


def _boilerplate(folders: Sequence[Path], counts: np.ndarray, common: int) -> dict[str, int]:
    """Count the documents that share text with more than `common` others.

    The second number counts those for which that is at least half of their text. In a large corpus
    many shingles fall into each slot of `counts`, so the median count of a slot is no sign of
    shared text and is added to `common`.
    """
    common = common + int(np.median(counts))
    some = 0
    half = 0
    for folder in folders:
        sets = OpenSets(folder)
        shared, halves = _shared(sets.hashes, sets.offsets, counts, common)
        some = some + shared
        half = half + halves
    return {"documents with boilerplate": some, "documents of which half is boilerplate": half}


@njit(cache=True, nogil=True)
def _shared(hashes, offsets, counts, common):
    some = 0
    half = 0
    for row in range(len(offsets) - 1):
        shared = 0
        for at in range(offsets[row], offsets[row + 1]):
            shared += counts[hashes[at] >> SHIFT] > common
        some += shared > 0
        half += 2 * shared >= offsets[row + 1] - offsets[row] and shared > 0
    return some, half
