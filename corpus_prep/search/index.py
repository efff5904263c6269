"""Build a search index from documents, and search it with the same Retriever that rollouts use.

Without an embedding model it ranks by BM25.

Documents pass through `indexed` one by one. An index folder holds `documents.arrow`
(memory-mapped), the ranker's arrays, and `manifest.json`: content hash, settings, and the size and
hash of every file. It is written beside its final place and renamed when complete.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from corpus_prep.read.documents import DocumentRow
from corpus_prep.search.bm25 import BM25_SETTINGS, Bm25Ranker, write_bm25
from corpus_prep.search.index_files import (
    DOCUMENT_SCHEMA,
    FORMAT,
    DocumentsFile,
    damaged,
    fingerprint,
    open_documents,
    read_documents,
    read_manifest,
)
from corpus_prep.search.settings import EmbeddingConfig, VectorSearch

if TYPE_CHECKING:
    from corpus_prep.search.encoder import Encoder


PIECES = 8  # rows ranked for each requested document, if documents are cut into pieces


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found.

    If documents are cut into pieces, it holds the best piece. `score` is BM25, or the cosine of the
    embeddings.
    """

    document_id: str
    title: str
    text: str
    score: float


class Ranker(Protocol):
    """What a `Retriever` needs of an index: the best documents for each query."""

    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        """For each query at most k (row number, score), best first, ties in order of row number."""
        ...


class Retriever:
    """Searches an index folder. Reads only, so threads may share it."""

    def __init__(self, documents: pa.Table, ranker: Ranker, manifest: dict[str, Any]):
        self.manifest = manifest
        self._ranker = ranker
        self._columns = [documents.column(name) for name in DOCUMENT_SCHEMA.names]

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        """At most k hits per query, best first.

        An empty query gets [], as does one without a word of the index (BM25).

        Raises:
            ValueError: k < 1.
        """
        if k < 1:
            raise ValueError(f"k is {k}: ask for at least one document.")
        is_whole = self.manifest["num_documents"] == len(self._columns[0])
        num_rows = k if is_whole else min(PIECES * k, len(self._columns[0]))
        ranked = self._ranker.rank(queries, num_rows)
        return [self._hits(ranking, k) for ranking in ranked]

    def _hits(self, ranked: list[tuple[int, float]], k: int) -> list[Hit]:
        """The first `k` documents, each by its best piece."""
        hits: dict[str, Hit] = {}
        for row, score in ranked:
            values = [column[row].as_py() for column in self._columns]
            document_id = values[0]
            hits.setdefault(document_id, Hit(*values, score=score))
            if len(hits) == k:
                break
        return list(hits.values())


def indexed(
    documents: Iterable[DocumentRow],
    folder: str | Path,
    embedding: EmbeddingConfig | None = None,
    search: VectorSearch | None = None,
    vectors: Path | None = None,
) -> Iterator[DocumentRow]:
    """Pass documents through; after the last, write an index of those that were not dropped.

    embedding: None for BM25. search: how vectors are searched. vectors: a file of the documents'
    vectors, in their order and made with `embedding`; without it, or if documents are cut into
    pieces, the vectors are computed.

    Raises:
        ValueError: the folder is not empty, two documents share an id, no document is usable, the
            number of vectors is wrong, or the model cannot be loaded.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"index folder {folder} exists and is not empty. Delete it or give another."
        )
    chunk_chars = search.chunk_chars if search else None
    vectors = vectors if embedding and chunk_chars is None else None
    encoder = _encoder(embedding) if embedding and vectors is None else None
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        documents_file = DocumentsFile(partial / "documents.arrow", chunk_chars)
        with documents_file:
            for document in documents:
                documents_file.add(document)
                yield document
        files = _write_ranker(documents_file.num_rows, partial, encoder, search, vectors)
        manifest = {
            "format": FORMAT,
            "num_documents": documents_file.num_documents,
            "num_rows": documents_file.num_rows,
            "content_hash": documents_file.content_hash,
            "embedding": embedding and embedding.model_dump(),
            **files,
            "files": {file.name: fingerprint(file) for file in sorted(partial.iterdir())},
        }
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def build_index(
    documents: Iterable[DocumentRow],
    folder: str | Path,
    embedding: EmbeddingConfig | None = None,
    search: VectorSearch | None = None,
    vectors: Path | None = None,
) -> Path:
    """Write an index of the documents and return its folder.

    Like `indexed`, for callers that do not need the documents.
    """
    for _ in indexed(documents, folder, embedding, search, vectors):
        pass
    return Path(folder)


def load_index(
    folder: str | Path,
    device: str | None = None,
    verify: bool = True,
    *,
    default_device: str | None = None,
) -> Retriever:
    """Open an index folder.

    `device` is where the embedding model runs, if not where it ran for building; `default_device`
    is where it runs if the index was built without naming a device (None: on a GPU if there is
    one).

    verify: hash every file (about 1 s per GB); sizes are always checked.

    Raises:
        ValueError: there is no index, it has another format, a file is missing or changed, or the
            model is not the one that built it.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, verify)
    documents = open_documents(folder)
    if documents.num_rows != manifest["num_rows"]:
        raise damaged(folder, f"it holds {documents.num_rows} rows, not {manifest['num_rows']}")
    if manifest["embedding"] is None:
        return Retriever(documents, Bm25Ranker(folder, documents.num_rows), manifest)
    from corpus_prep.search.vectors import VectorRanker

    config = EmbeddingConfig(**manifest["embedding"])
    if device or config.device is None:
        config = config.model_copy(update={"device": device or default_device})
    ranker = VectorRanker(folder, _encoder(config), VectorSearch(**manifest["search"]))
    ranker.check(*next(read_documents(folder)))
    return Retriever(documents, ranker, manifest)


def _write_ranker(
    num_documents: int,
    folder: Path,
    encoder: Encoder | None,
    search: VectorSearch | None,
    vectors: Path | None,
) -> dict[str, Any]:
    """Write the ranker's files; returns its settings, for the manifest."""
    if encoder is None and vectors is None:
        write_bm25(read_documents(folder), folder)
        return {"bm25": BM25_SETTINGS, "search": None}
    from corpus_prep.search.encoder import join_vectors, vectors_of
    from corpus_prep.search.vectors import VECTORS, write_search

    if encoder is not None:
        join_vectors(vectors_of(encoder, read_documents(folder)), num_documents, folder / VECTORS)
    elif vectors is not None:
        _link(vectors, folder / VECTORS)
        num_vectors = len(np.load(folder / VECTORS, mmap_mode="r"))
        if num_vectors != num_documents:
            raise ValueError(
                f"{vectors} has {num_vectors} vectors for {num_documents} documents. Embed them"
                " again."
            )
    return {
        "bm25": None,
        "search": write_search(folder / VECTORS, search or VectorSearch(), folder).model_dump(),
    }


def _link(file: Path, to: Path) -> None:
    """Hard-link a file that is never written to again; copy it if the file system cannot."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copyfile(file, to)


def _encoder(config: EmbeddingConfig) -> Encoder:
    from corpus_prep.search.encoder import Encoder  # imports torch, which BM25 does not need

    return Encoder(config)
