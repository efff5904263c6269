"""The corpus of a run: documents, used and dropped, with the search index in the table's files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from corpus_prep.formats import Columns
from corpus_prep.hub import is_dataset
from corpus_prep.index import EmbeddingConfig, build_index
from corpus_prep.quality import QualityRules, first_failing, language_of
from corpus_prep.read import CorpusCounts, DocumentRow, read_corpus
from tasks.stage import Rows, stage
from warehouse.draft import Draft, hash_bytes
from warehouse.schemas import DOCUMENTS
from warehouse.store import Table

log = logging.getLogger("selfplay")
PROGRESS_S = 10.0


@stage(DOCUMENTS)
def read_documents(path: str, *, identity: str, embedding: EmbeddingConfig | None, draft: Draft) -> Rows:
    """Yield the documents at `path` and index the used ones. `identity` is `corpus_identity(path)`."""
    yield from _with_index(read_corpus(Path(path)), embedding, draft)


@stage(DOCUMENTS)
def store_documents(
    documents: list[dict[str, str]], *, source: str, embedding: EmbeddingConfig | None, draft: Draft
) -> Rows:
    """The same for documents made in memory (document_id, title, text)."""
    rows = (DocumentRow(d["document_id"], d["title"], d["text"], source, num_chars=len(d["text"])) for d in documents)
    yield from _with_index(rows, embedding, draft)


@stage(DOCUMENTS)
def gather(path: str, *, identity: str, columns: Columns, max_chars: int, rules: QualityRules, address: str) -> Rows:
    """Yield every document at `path`; one that breaks a rule keeps its text and is dropped with the rule's name.

    `identity` is `corpus_identity(path)`; a document of more than `max_chars` is not even kept.
    """
    for row in read_corpus(path, max_chars=max_chars, columns=columns, progress=_every_few_seconds(address)):
        yield row_of(row if row.dropped_reason else _judged(row, rules))


def _judged(row: DocumentRow, rules: QualityRules) -> DocumentRow:
    language = language_of(row.text) if rules.languages else None
    return replace(row, language=language, dropped_reason=first_failing(row.text, row.score, language, rules))


def _every_few_seconds(address: str) -> Callable[[CorpusCounts], None]:
    told = time.monotonic()

    def tell(counts: CorpusCounts) -> None:
        nonlocal told
        if time.monotonic() - told > PROGRESS_S:
            told = time.monotonic()
            where = f"file {counts.num_files_begun} of {counts.num_files}"
            log.info("%s: %s, %d documents read, %d usable", address, where, counts.num_rows, counts.kept)

    return tell


@stage(DOCUMENTS)
def settle(documents: Table, *screenings: Table) -> Rows:
    """Yield the usable documents that every screening keeps."""
    dropped = [t.arrow.filter(~pc.field("kept"))["document_id"] for t in screenings]
    gone = pa.chunked_array([chunk for column in dropped for chunk in column.chunks], pa.string()).combine_chunks()
    stays = pc.field("dropped_reason").is_null() & ~pc.field("document_id").isin(gone)
    for batch in documents.batches():
        yield pa.Table.from_batches([batch]).filter(stays)


def corpus_identity(path: str) -> str:
    """What tells whether a corpus on disk changed: names, sizes and times of its files. A dataset of a hub is told by
    its revision, which stands in its name."""
    if is_dataset(path) and not Path(path).exists():
        return path
    top = Path(path)
    files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
    facts = [(str(p.relative_to(top)), p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.exists()]
    return hash_bytes(repr(facts).encode())


def _with_index(
    rows: Iterable[DocumentRow], embedding: EmbeddingConfig | None, draft: Draft
) -> Iterator[dict[str, Any]]:
    kept = []
    for row in rows:
        if row.dropped_reason is None:
            kept.append(row)
        yield row_of(row)
    build_index(kept, draft.files / "index", embedding)


def row_of(row: DocumentRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in DOCUMENTS.arrow.names}
