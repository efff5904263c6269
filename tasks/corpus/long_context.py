"""Material for long contexts: documents cut into prose and tables, sets of documents, and sets
filled with distractors.

segments = split_documents(place, documents, splitting=Splitting(max_tokens=4_096), count=count)
lengths  = count_document_tokens(place, documents, count=count)
sets     = make_document_sets(place, memberships, lengths, settings=SetSettings())
padded   = pad_document_sets(place, sets, memberships, lengths, padding=Padding(), label="padded")
members  = clusters_of_sets(place, sets, memberships)
measure_long_contexts(place, segments, lengths, sets, padded, label="long_contexts")

`count` returns a text's length in tokens: `functools.partial(count_tokens, model=...)` with
`count_tokens` from `tasks.rollouts.tokens`.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from corpus_prep.clusters.document_sets import (
    Distractors,
    Padding,
    SetSettings,
    SizedDocument,
    sets_of,
)
from corpus_prep.clusters.lengths import members as members_of
from corpus_prep.clusters.lengths import write_lengths
from corpus_prep.clusters.segments import Count, Splitting, write_segments
from corpus_prep.workers import Workers, map_shards
from tasks.corpus.steps import corpus_of, costs, folder_of, measured
from tasks.stage import Rows, stage
from warehouse.draft import Shards
from warehouse.schemas import (
    DOCUMENT_SETS,
    LENGTHS,
    MEASUREMENTS,
    MEMBERSHIPS,
    SEGMENTS,
    Measurement,
    SetMember,
)
from warehouse.store import Table


@stage(SEGMENTS, tools=("workers",))
def split_documents(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    splitting: Splitting,
    count: Count,
    workers: Workers | None = None,
    shards: Shards,
) -> Rows:
    """Yield the stretches of prose and the tables of every document that no screening dropped
    and is long enough."""
    batches = corpus_of(documents, screened).shards(folder_of(shards), "segments")
    yield from map_shards(
        functools.partial(write_segments, count=count), batches, splitting, workers
    )


@stage(LENGTHS, tools=("workers",))
def count_document_tokens(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    count: Count,
    workers: Workers | None = None,
    shards: Shards,
) -> Rows:
    """Yield the length in tokens of every document that no screening dropped."""
    batches = corpus_of(documents, screened).shards(folder_of(shards), "lengths")
    yield from map_shards(write_lengths, batches, count, workers)


@stage(DOCUMENT_SETS)
def make_document_sets(memberships: Table, lengths: Table, *, settings: SetSettings) -> Rows:
    """Yield the document sets made from clusters, one by one. Raises ValueError if there are
    none."""
    num_sets = 0
    documents = SizedDocument.of(members_of(memberships.paths(), lengths.paths()))
    for cluster, members in groupby(documents, key=lambda document: document.cluster):
        for number, chosen in enumerate(sets_of(list(members), settings)):
            num_sets += 1
            yield from _rows(f"{cluster}-{number}", ((document, "member") for document in chosen))
    if not num_sets:
        raise ValueError(
            f"no cluster of {memberships.address} gives a set of {settings.smallest} documents and"
            f" at most {settings.max_tokens or 'any number of'} tokens: allow smaller sets"
            " (smallest) or more (max_tokens)"
        )


@stage(DOCUMENT_SETS)
def pad_document_sets(sets: Table, memberships: Table, lengths: Table, *, padding: Padding) -> Rows:
    """Yield every set with distractors from other clusters among its members, under the id
    `<set>-<tokens>`."""
    distractors = Distractors(
        pa.Table.from_batches(members_of(memberships.paths(), lengths.paths()))
    )
    rows = (row for batch in sets.batches() for row in batch.to_pylist())
    for set_id, members in groupby(rows, key=lambda row: row["set_id"]):
        own = [
            SizedDocument(row["document_id"], row["cluster"], row["num_tokens"]) for row in members
        ]
        budget, shown = distractors.pad(set_id, own, padding)
        yield from _rows(f"{set_id}-{budget}", shown)


def _rows(set_id: str, shown: Iterable[tuple[SizedDocument, str]]) -> Iterator[SetMember]:
    for position, (document, kind) in enumerate(shown):
        yield {
            "set_id": set_id,
            "position": position,
            "document_id": document.document_id,
            "cluster": document.cluster,
            "kind": kind,
            "num_tokens": document.num_tokens,
        }


@stage(MEMBERSHIPS)
def clusters_of_sets(sets: Table, memberships: Table) -> Rows:
    """Yield the documents of every set as a separate cluster, in the order of `memberships`; the
    parent is the cluster from which the set was made."""
    rows = sets.arrow
    numbers = rows["set_id"].combine_chunks().dictionary_encode().indices
    # each document is in at most one set
    number_of = dict(zip(rows["document_id"].to_pylist(), numbers.to_pylist(), strict=True))
    for batch in memberships.batches():
        own = pa.array(
            [number_of.get(document_id) for document_id in batch["document_id"].to_pylist()],
            pa.int32(),
        )
        columns = {"document_id": batch["document_id"], "cluster": own, "parent": batch["cluster"]}
        yield pa.table({**columns, "similarity": batch["similarity"]}).filter(own.is_valid())


@stage(MEASUREMENTS)
def measure_long_contexts(*tables: Table) -> Iterator[Measurement]:
    """Yield statistics of segments, lengths and sets, and the cost of making them."""
    for table in tables:
        yield from measured(table.at.name, [*costs(table), *NUMBERS[table.schema](table)])


def _of_segments(segments: Table) -> Iterator[tuple[str, float]]:
    counts = Counter(
        kind for batch in segments.batches(["kind"]) for kind in batch["kind"].to_pylist()
    )
    yield from ((f"segments: {kind}", number) for kind, number in sorted(counts.items()))


def _of_lengths(lengths: Table) -> Iterator[tuple[str, float]]:
    yield from _spread("tokens of a document", lengths.arrow["num_tokens"].to_numpy())


def _of_sets(sets: Table) -> Iterator[tuple[str, float]]:
    totals = sets.arrow.group_by("set_id").aggregate(
        [("num_tokens", "sum"), ("num_tokens", "count")]
    )
    yield "sets", len(totals)
    yield from _spread("documents of a set", totals["num_tokens_count"].to_numpy())
    yield from _spread("tokens of a set", totals["num_tokens_sum"].to_numpy())


NUMBERS = {SEGMENTS: _of_segments, LENGTHS: _of_lengths, DOCUMENT_SETS: _of_sets}


def _spread(name: str, values: np.ndarray) -> Iterator[tuple[str, float]]:
    """Yield the mean, median and maximum; nothing if there are no values."""
    if len(values):
        yield f"{name}, mean", float(values.mean())
        yield f"{name}, median", float(np.median(values))
        yield f"{name}, most", float(values.max())
