"""A search index over a prepared corpus: its table is what stages that generate are given as `index`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from corpus_prep.corpus import Corpus
from corpus_prep.index import EmbeddingConfig, VectorSearch, build_index
from corpus_prep.index_files import read_manifest
from corpus_prep.read import DocumentRow
from tasks.cluster import VECTORS
from tasks.stage import Rows, stage
from tasks.steps import corpus_of
from warehouse.corpus_schemas import INDEXES
from warehouse.draft import Draft
from warehouse.store import Table


@stage(INDEXES)
def index_documents(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    embedding: EmbeddingConfig | None = None,
    embeddings: Table | None = None,
    search: VectorSearch | None = None,
    draft: Draft,
) -> Rows:
    """Yield the one row of a search index over the documents that came through.

    Without `embedding` they are found by words (BM25); `embeddings`, made by it from the same documents, spare
    computing their vectors again.
    """
    vectors = embeddings.files / VECTORS if embeddings else None
    rows = _rows(corpus_of(documents, screened))
    folder = build_index(rows, draft.files / "index", embedding, search, vectors)
    manifest = read_manifest(folder, verify=False)
    yield {
        "kind": manifest["search"]["kind"] if embedding else "bm25",
        "num_documents": manifest["num_documents"],
        "embedding": f"{embedding.model} {embedding.revision or ''}".strip() if embedding else None,
        "num_bytes": sum(file["num_bytes"] for file in manifest["files"].values()),
    }


def _rows(corpus: Corpus) -> Iterator[DocumentRow]:
    for batch in corpus.batches(["document_id", "title", "text"]):
        columns = (batch[name].to_pylist() for name in ("document_id", "title", "text"))
        yield from (DocumentRow(key, title or "", text) for key, title, text in zip(*columns, strict=True))
