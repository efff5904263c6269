"""The corpus of a run: documents, used and dropped, with the search index in the table's files."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpus_prep.read.documents import CorpusCounts, DocumentRow, read_corpus
from corpus_prep.read.files import Columns, walk
from corpus_prep.read.hub import is_dataset
from corpus_prep.read.quality import QualityRules, first_failing, language_of
from corpus_prep.search.index import indexed
from corpus_prep.search.settings import EmbeddingConfig, VectorSearch
from tasks.corpus.cluster import VECTORS
from tasks.corpus.steps import corpus_of, costs, measured, screened_counts
from tasks.stage import Rows, stage
from warehouse.draft import Draft, hash_bytes
from warehouse.schemas import DOCUMENTS, MEASUREMENTS, Row
from warehouse.store import Table

log = logging.getLogger("selfplay")
PROGRESS_S = 10.0


@stage(DOCUMENTS)
def read_documents(
    path: str, *, identity: str, embedding: EmbeddingConfig | None, draft: Draft, address: str
) -> Rows:
    """Yield the documents at `path` and index the used ones. `identity` is
    `corpus_identity(path)`."""
    counts = CorpusCounts()
    yield from _with_index(read_corpus(path, counts=counts), embedding, draft)
    for reason, number in counts.dropped.most_common():
        log.warning("%s: %d of %d documents dropped: %s", address, number, counts.num_rows, reason)


@stage(DOCUMENTS)
def store_documents(
    documents: list[dict[str, str]], *, source: str, embedding: EmbeddingConfig | None, draft: Draft
) -> Rows:
    """Yield documents held in memory (document_id, title, text), which come from `source`, and
    index them (BM25 if `embedding` is None). Raises ValueError as `indexed` does."""
    rows = (
        DocumentRow(d["document_id"], d["title"], d["text"], source, num_chars=len(d["text"]))
        for d in documents
    )
    yield from _with_index(rows, embedding, draft)


@stage(DOCUMENTS)
def gather(
    path: str, *, identity: str, columns: Columns, max_chars: int, rules: QualityRules, address: str
) -> Rows:
    """Yield every document at `path`, long ones in pieces if the rules say so. A document that
    breaks a rule is dropped with the rule's name as the reason, but its text is stored.

    `identity` is `corpus_identity(path)`. A document of more than `max_chars` is not stored at all.
    """
    counts = CorpusCounts()
    told = _every_few_seconds(address)
    rows = read_corpus(
        path,
        max_chars=max_chars,
        piece_chars=rules.piece_chars,
        columns=columns,
        counts=counts,
        progress=told,
    )
    for row in rows:
        yield row_of(row if row.dropped_reason else _judged(row, rules))
    log.info(
        "%s: %d documents cut into pieces, %d rid of invisible characters, %d renamed, as others"
        " have their ids",
        address,
        counts.cut,
        counts.repaired,
        counts.renamed,
    )


def _judged(row: DocumentRow, rules: QualityRules) -> DocumentRow:
    language = language_of(row.text) if rules.need_language else None
    return replace(
        row, language=language, dropped_reason=first_failing(row.text, row.score, language, rules)
    )


def _every_few_seconds(address: str) -> Callable[[CorpusCounts], None]:
    told = time.monotonic()

    def tell(counts: CorpusCounts) -> None:
        nonlocal told
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            where = f"file {counts.num_files_begun} of {counts.num_files}"
            log.info(
                "%s: %s, %d documents read, %d usable", address, where, counts.num_rows, counts.kept
            )

    return tell


@stage(MEASUREMENTS)
def measure_reading(documents: Table) -> Rows:
    """Yield how much was read, was unusable and why, and was cut into pieces, and the cost."""
    yield from measured("read", [*costs(documents), *screened_counts(documents)])
    pieces = pa.concat_arrays(
        [batch["piece_of"] for batch in documents.batches(["piece_of"])]
    ).drop_null()
    yield from measured(
        "read", [("documents cut", len(pieces.unique())), ("pieces of documents", len(pieces))]
    )


@stage(MEASUREMENTS)
def measure_settling(prepared: Table) -> Rows:
    """Yield how much is kept, and the cost of storing and indexing it."""
    size = sum(entry["bytes"] for entry in prepared.contents.values())
    yield from measured(
        "index", [*costs(prepared), ("rows_out", prepared.num_rows), ("size_mb", size / 1e6)]
    )


@stage(DOCUMENTS)
def settle(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    embeddings: Table | None = None,
    embedding: EmbeddingConfig | None = None,
    search: VectorSearch | None = None,
    draft: Draft,
) -> Rows:
    """Yield the usable documents that every screening kept, and index them.

    `embeddings` are those of the same documents by the same model; if they are not given, they are
    computed. Without a model, the index is BM25.
    """
    rows = _staying(documents, corpus_of(documents, screened).counts)
    vectors = embeddings.files / VECTORS if embeddings is not None else None
    yield from map(row_of, indexed(rows, draft.files / "index", embedding, search, vectors))


def _staying(documents: Table, counts: np.ndarray) -> Iterator[DocumentRow]:
    at = 0
    for batch in documents.batches():
        for row in batch.filter(pa.array(counts[at : at + batch.num_rows])).to_pylist():
            yield DocumentRow(**row)
        at += batch.num_rows


@stage(DOCUMENTS)
def take(prepared: Table, *, draft: Draft) -> Rows:
    """Yield the documents of a prepared corpus, with its index: hard links to its files, so they
    outlive its run."""
    shutil.copytree(prepared.files, draft.files, copy_function=_link, dirs_exist_ok=True)
    yield from prepared.paths()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another filesystem, or one without hard links
        shutil.copy2(source, target)


def corpus_identity(path: str) -> str:
    """An identity that changes if a corpus on disk changes: the names, sizes and times of the files
    that `read_corpus` reads. A dataset on the hub is identified by the revision in its name."""
    if is_dataset(path) and not Path(path).exists():
        return path
    top = Path(path)
    files = sorted(walk(top)) if top.is_dir() else [top]
    facts = [
        (str(p.relative_to(top)), p.stat().st_size, p.stat().st_mtime_ns)
        for p in files
        if p.exists()
    ]
    return hash_bytes(repr(facts).encode())


def _with_index(
    rows: Iterable[DocumentRow], embedding: EmbeddingConfig | None, draft: Draft
) -> Iterator[Row]:
    return map(row_of, indexed(rows, draft.files / "index", embedding))


def row_of(row: DocumentRow) -> Row:
    """A document that was read, as a row of `documents`."""
    return {name: getattr(row, name) for name in DOCUMENTS.arrow.names}
