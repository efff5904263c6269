"""Remove duplicates from a corpus: first equal texts, then near-duplicates, found by MinHash and
checked with exact Jaccard similarities.

The stages run in this order. Each takes the `screenings` of the stages before it and ignores
documents that one of them dropped:

    exact = screen_exact_duplicates(place, documents, label="exact")
    bands = band_documents(place, documents, screened=[exact], settings=settings)
    duplicates = find_duplicates(place, documents, bands, screened=[exact], settings=settings)
    near = screen_near_duplicates(
        place, documents, duplicates, screened=[exact], threshold=0.8, label="near"
    )
    measure_duplicates(
        place, exact, bands, duplicates, near, threshold=0.8, label="duplicates"
    )
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from corpus_prep.dedup.bands import write_bands
from corpus_prep.dedup.canaries import plant, write_found
from corpus_prep.dedup.duplicates import Keep, screen_exact, screen_families
from corpus_prep.dedup.edges import Comparing, find_edges, ordered_edges, read_edges
from corpus_prep.dedup.families import find_families
from corpus_prep.dedup.measure import canary_recall, count_chained, jaccard_histogram
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.workers import Workers, map_shards
from tasks.corpus.steps import corpus_of, costs, folder_of, measured, screened_counts
from tasks.stage import Rows, stage
from warehouse.draft import Draft, Shards
from warehouse.schemas import BANDS, DUPLICATES, MEASUREMENTS, SCREENINGS, Measurement
from warehouse.store import Table

CANARIES = "canaries.parquet"
COUNTS = "counts.json"


@stage(SCREENINGS, tools=("workers",))
def screen_exact_duplicates(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    keep: Keep = "longest",
    workers: Workers | None = None,
    shards: Shards,
) -> Rows:
    """Yield a screening of every document that no earlier one dropped: of those with the same words
    in the same order, the one chosen by `keep` stays."""
    yield from screen_exact(corpus_of(documents, screened), keep, folder_of(shards), workers)


@stage(BANDS, tools=("workers",))
def band_documents(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    settings: MinHashing,
    workers: Workers | None = None,
    shards: Shards,
) -> Rows:
    """Yield the bands of every document that no screening dropped, made with `settings`, as one
    Parquet file per shard of the corpus."""
    batches = corpus_of(documents, screened).shards(folder_of(shards), "bands")
    yield from map_shards(write_bands, batches, settings, workers)


@stage(DUPLICATES, tools=("workers",))
def find_duplicates(
    documents: Table,
    bands: Table,
    *,
    screened: Sequence[Table] = (),
    settings: MinHashing,
    comparing: Comparing | None = None,
    canaries: int = 0,
    seed: int = 0,
    workers: Workers | None = None,
    shards: Shards,
    draft: Draft,
) -> Rows:
    """Yield every pair of documents that shares a band and is similar enough to be stored, with its
    exact Jaccard similarity.

    `settings` are those of `bands`. With `canaries`, edited copies of that many documents are also
    searched for; they are not among the rows but in the file `canaries.parquet` beside them.
    `counts.json` says what was compared.
    """
    comparing = comparing or Comparing()
    folder = folder_of(shards)
    corpus = corpus_of(documents, screened)
    searched = corpus
    planted = None
    files = bands.paths()
    if canaries:
        searched, planted = plant(corpus, canaries, seed, settings.shingling, folder / CANARIES)
        behind = [
            s for s in searched.shards(folder, "canary-bands") if s.first >= corpus.num_documents
        ]
        files += map_shards(write_bands, behind, settings, workers)
    edges = find_edges(searched, files, settings, comparing, folder, workers)
    if planted is not None:
        write_found(planted, read_edges(edges.files, comparing.floor), draft.files / CANARIES)
    (draft.files / COUNTS).write_text(json.dumps({**edges.counts, "floor": comparing.floor}))
    yield from ordered_edges(corpus, edges.files, folder)


@stage(SCREENINGS)
def screen_near_duplicates(
    documents: Table,
    duplicates: Table,
    *,
    screened: Sequence[Table] = (),
    threshold: float = 0.8,
    keep: Keep = "longest",
    shards: Shards,
) -> Rows:
    """Yield a screening of every document that no earlier one dropped: of those connected, directly
    or through others, by pairs with a Jaccard similarity of at least `threshold`, the one chosen by
    `keep` stays.

    Raises ValueError for a threshold below the smallest similarity for which pairs were stored.
    """
    floor = json.loads((duplicates.files / COUNTS).read_text())["floor"]
    if threshold < floor:
        raise ValueError(
            f"{duplicates.address} has pairs from Jaccard {floor} on; find them again from"
            f" {threshold} on"
        )
    corpus = corpus_of(documents, screened)
    families = find_families(read_edges(duplicates.paths(), threshold), corpus.num_documents)
    yield from screen_families(corpus, families, keep, "near_duplicate", folder_of(shards))


@stage(MEASUREMENTS)
def measure_duplicates(
    exact: Table, bands: Table, duplicates: Table, near: Table, *, threshold: float = 0.8
) -> Iterator[Measurement]:
    """Yield what each of the four stages did and cost, pairs by Jaccard similarity, and how many
    canaries were found."""
    for step, table in (
        ("exact", exact),
        ("bands", bands),
        ("duplicates", duplicates),
        ("near", near),
    ):
        yield from measured(step, costs(table))
    yield from measured("exact", screened_counts(exact))
    yield from measured("near", screened_counts(near))
    yield from measured(
        "near",
        [("dropped through others", count_chained(near.paths(), duplicates.paths(), threshold))],
    )
    yield from measured("duplicates", [("pairs", duplicates.num_rows)])
    yield from measured("duplicates", json.loads((duplicates.files / COUNTS).read_text()).items())
    yield from measured(
        "duplicates", ((f"pairs from {s:.2f}", n) for s, n in jaccard_histogram(duplicates.paths()))
    )
    if (duplicates.files / CANARIES).exists():
        yield from measured("duplicates", canary_recall(duplicates.files / CANARIES, threshold))
