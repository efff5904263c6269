"""The corpus of a run: documents, used and dropped, with the search index in the table's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from corpus_prep.index import EmbeddingConfig, indexed
from corpus_prep.read import DocumentRow, read_corpus
from tasks.stage import Rows, stage
from warehouse.draft import Draft, hash_bytes
from warehouse.schemas import DOCUMENTS


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


def corpus_identity(path: str) -> str:
    """What tells whether a corpus on disk changed: names, sizes and times of its files."""
    top = Path(path)
    files = sorted(p for p in top.rglob("*") if p.is_file()) if top.is_dir() else [top]
    facts = [(str(p.relative_to(top)), p.stat().st_size, p.stat().st_mtime_ns) for p in files if p.exists()]
    return hash_bytes(repr(facts).encode())


def _with_index(
    rows: Iterable[DocumentRow], embedding: EmbeddingConfig | None, draft: Draft
) -> Iterator[dict[str, Any]]:
    return map(row_of, indexed(rows, draft.files / "index", embedding))


def row_of(row: DocumentRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in DOCUMENTS.arrow.names}
