"""Material for long contexts: documents cut into prose and tables, sets of documents, and sets filled with distractors.

segments = split_documents(place, documents, max_tokens=5_992, count=count)
lengths  = count_document_tokens(place, documents, count=count)
sets     = make_document_sets(place, memberships, lengths, settings=SetSettings())
padded   = pad_document_sets(place, sets, memberships, lengths, padding=Padding(), label="padded")

`count` gives a text's length in tokens: `functools.partial(count_tokens, model=...)` of `tasks.tokens`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from itertools import groupby
from typing import Any

import pyarrow as pa

from corpus_prep.document_sets import Distractors, Padding, SetSettings, Shown, sets_of
from corpus_prep.lengths import members as members_of
from corpus_prep.lengths import write_lengths
from corpus_prep.segments import Count, segments
from corpus_prep.workers import Workers, map_shards
from tasks.stage import Rows, stage
from tasks.steps import corpus_of, folder_of
from warehouse.corpus_schemas import DOCUMENT_SETS, LENGTHS, SEGMENTS
from warehouse.draft import Shards
from warehouse.store import Table


@stage(SEGMENTS)
def split_documents(
    documents: Table, *, screened: Sequence[Table] = (), max_tokens: int, min_chars: int = 0, count: Count
) -> Rows:
    """Yield the stretches of prose and the tables of every document of at least `min_chars`, each of at most
    `max_tokens`."""
    for batch in corpus_of(documents, screened).batches(["document_id", "text"]):
        for document_id, text in zip(batch["document_id"].to_pylist(), batch["text"].to_pylist(), strict=True):
            found = segments(text, max_tokens, count) if len(text) >= min_chars else ()
            for position, (kind, part, num_tokens) in enumerate(map(astuple, found)):
                own = {"document_id": document_id, "position": position, "kind": kind}
                yield {**own, "text": part, "num_tokens": num_tokens}


@stage(LENGTHS, tools=("workers",))
def count_document_tokens(
    documents: Table, *, screened: Sequence[Table] = (), count: Count, workers: Workers | None = None, shards: Shards
) -> Rows:
    """Yield the length of every document that came through."""
    found = corpus_of(documents, screened).shards(folder_of(shards), "lengths")
    yield from map_shards(write_lengths, found, count, workers)


@stage(DOCUMENT_SETS)
def make_document_sets(memberships: Table, lengths: Table, *, settings: SetSettings) -> Rows:
    """Yield the sets that clusters give, one after the other."""
    documents = (Shown(*row) for row in members_of(memberships.paths(), lengths.paths()))
    for cluster, members in groupby(documents, key=lambda document: document.cluster):
        for number, chosen in enumerate(sets_of(list(members), settings)):
            yield from _rows(f"{cluster}-{number}", [(document, "member") for document in chosen])


@stage(DOCUMENT_SETS)
def pad_document_sets(sets: Table, memberships: Table, lengths: Table, *, padding: Padding) -> Rows:
    """Yield every set with distractors from other clusters among its members, as `<set>-<tokens>`."""
    rows = list(members_of(memberships.paths(), lengths.paths()))
    names = ("document_id", "cluster", "num_tokens")
    distractors = Distractors(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))))
    for set_id, members in groupby(sets.rows(), key=lambda row: row["set_id"]):
        own = [Shown(*(row[name] for name in names)) for row in members]
        budget, shown = distractors.pad(set_id, own, padding)
        yield from _rows(f"{set_id}-{budget}", shown)


def _rows(set_id: str, shown: Sequence[tuple[Shown, str]]) -> Iterator[dict[str, Any]]:
    for position, (document, kind) in enumerate(shown):
        own = {"document_id": document.document_id, "cluster": document.cluster, "num_tokens": document.num_tokens}
        yield {"set_id": set_id, "position": position, "kind": kind, **own}
