"""Documents to a search index, and the one Retriever that rollouts use: BM25 where there is no embedding model.

Documents pass through `indexed` one by one. An index folder holds `documents.arrow` (memory-mapped), the ranker's
arrays, and `manifest.json`: content hash, settings, and size and hash of every file. It is written beside its place and
renamed when whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

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

if TYPE_CHECKING:
    from corpus_prep.search.encoder import Encoder


GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Hit:
    """A found document. score: BM25, or the cosine of the embeddings."""

    document_id: str
    title: str
    text: str
    score: float


class EmbeddingConfig(BaseModel):
    """A sentence-transformers model: a hub name with its pinned revision, or a local folder. Default: E5-base-v2."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = "intfloat/e5-base-v2"
    revision: str | None = "f52bf8ec8c7124536f0efb74aca902b2995e5bcd"
    query_prefix: str = "query: "
    document_prefix: str = "passage: "
    device: str | None = None
    """None: a GPU if there is one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the model and of the product; what it finds is scored again in float32. On a CPU without bfloat16 instructions
    (avx512_bf16, amx_bf16) only float32 is quick."""
    batch_size: PositiveInt = 64

    @model_validator(mode="before")
    @classmethod
    def _a_folder_has_no_revision(cls, given: Any) -> Any:
        if isinstance(given, dict) and "revision" not in given and Path(str(given.get("model", ""))).is_dir():
            return {**given, "revision": None} if given.get("model") else given
        return given

    @model_validator(mode="after")
    def _revision_belongs_to_model(self) -> Self:
        named = {"model", "revision"} & self.model_fields_set
        if named == {"model"} and self.model != EmbeddingConfig.model_fields["model"].default:
            raise ValueError(f"embedding model {self.model}: name its revision too, a commit hash.")
        if self.revision is None and not Path(self.model).is_dir():
            raise ValueError(f"embedding model {self.model} is no local folder: pin its revision, a commit hash.")
        return self


def check_model(config: EmbeddingConfig) -> None:
    """Raises ValueError for a model that is not there, without loading it."""
    from huggingface_hub import hf_hub_download

    try:
        if not Path(config.model).is_dir():
            hf_hub_download(config.model, "config.json", revision=config.revision)
        elif not (Path(config.model) / "config.json").exists():
            raise FileNotFoundError("the folder has no config.json")
    except (OSError, ValueError) as problem:
        raise ValueError(
            f"embedding model {config.model} (revision {config.revision}) cannot be loaded: {problem}. Give a local "
            "folder or download it first; without an embedding model BM25 is used."
        ) from problem


Kind = Literal["exact", "ivf_sq8", "ivf_pq"]


class VectorSearch(BaseModel):
    """How vectors are searched.

    exact: a product with all of them, in memory of the device, in the model's dtype.
    ivf_sq8, ivf_pq: a faiss inverted file, mapped from disk, with a byte a dimension or `pq_bytes` a vector.
    auto: exact up to 2 GiB of stored vectors (1.4 million of 768 dimensions in 16 bits), ivf_sq8 up to 64 GiB, else
    ivf_pq.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["auto"] | Kind = "auto"
    lists: PositiveInt | None = None
    """Of the inverted file. None: 4 * sqrt(documents), faiss' guideline."""
    probes: PositiveInt = 64
    """Lists looked into for a query."""
    pq_bytes: PositiveInt = 96
    candidates: PositiveInt | None = None
    """Documents a hit that are scored again in float32. None: 4, and 32 for ivf_pq."""
    seed: int = 0

    def resolved(self, vector_DH: np.ndarray) -> VectorSearch:
        """With everything settled that was left to the size."""
        num, dimensions = vector_DH.shape
        size = num * dimensions * vector_DH.itemsize
        kind = self.kind if self.kind != "auto" else choose(size)
        lists = min(self.lists or max(1, int(4 * num**0.5)), num)
        pq_bytes = max(part for part in range(1, self.pq_bytes + 1) if dimensions % part == 0)
        settled = {"kind": kind, "lists": lists, "pq_bytes": pq_bytes, "probes": min(self.probes, lists)}
        return self.model_copy(update={**settled, "candidates": self.candidates or (32 if kind == "ivf_pq" else 4)})


def choose(num_bytes: int) -> Kind:
    """The kind of search for stored vectors of this size."""
    return "exact" if num_bytes <= 2 * GIB else "ivf_sq8" if num_bytes <= 64 * GIB else "ivf_pq"


class Ranker(Protocol):
    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        """For each query at most k (row number, score), best first, ties by row number."""
        ...


class Retriever:
    """Searches an index folder. Reads only, so threads may share it."""

    def __init__(self, documents: pa.Table, ranker: Ranker, manifest: dict[str, Any]):
        self.manifest = manifest
        self._ranker = ranker
        self._columns = [documents.column(name) for name in DOCUMENT_SCHEMA.names]

    def search(self, queries: list[str], k: int) -> list[list[Hit]]:
        """At most k hits a query, best first. A query that is empty or shares no known word with any document gets [].

        Raises:
            ValueError: k < 1.
        """
        if k < 1:
            raise ValueError(f"k is {k}: ask for at least one document.")
        return [
            [Hit(*(column[row].as_py() for column in self._columns), score=score) for row, score in ranked]
            for ranked in self._ranker.rank(queries, k)
        ]


def indexed(
    documents: Iterable[DocumentRow],
    folder: str | Path,
    embedding: EmbeddingConfig | None = None,
    search: VectorSearch | None = None,
    vectors: Path | None = None,
) -> Iterator[DocumentRow]:
    """Pass documents on; when they end, write an index of those that were not dropped.

    embedding: None for BM25. search: how its vectors are searched. vectors: a file of those of the documents, in their
    order and made by `embedding`; else they are computed.

    Raises:
        ValueError: folder has content, two documents share an id, none is usable, the vectors are not as many, or the
            model cannot be loaded.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"index folder {folder} exists and is not empty. Delete it or give another.")
    encoder = _encoder(embedding) if embedding and vectors is None else None
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        documents_file = DocumentsFile(partial / "documents.arrow")
        with documents_file:
            for document in documents:
                documents_file.add(document)
                yield document
        num_documents = documents_file.num_documents
        how = _write_ranker(num_documents, partial, encoder, search, vectors if embedding else None)
        manifest = {
            "format": FORMAT,
            "num_documents": num_documents,
            "content_hash": documents_file.content_hash,
            "embedding": embedding and embedding.model_dump(),
            **how,
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
    """Write an index of the documents: `indexed`, for where nobody else wants them."""
    for _ in indexed(documents, folder, embedding, search, vectors):
        pass
    return Path(folder)


def load_index(folder: str | Path, device: str | None = None, verify: bool = True) -> Retriever:
    """Open an index folder. device: for the embedding model, in place of the one it was built on.

    verify: hash every file (about 1 s per GB); sizes are always checked.

    Raises:
        ValueError: no index, another format, a missing or changed file, or a model that is not the index's.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, verify)
    documents = open_documents(folder)
    if documents.num_rows != manifest["num_documents"]:
        raise damaged(folder, f"it holds {documents.num_rows} documents, not {manifest['num_documents']}")
    if manifest["embedding"] is None:
        return Retriever(documents, Bm25Ranker(folder, documents.num_rows), manifest)
    from corpus_prep.search.vectors import VectorRanker

    config = EmbeddingConfig(**manifest["embedding"])
    encoder = _encoder(config.model_copy(update={"device": device}) if device else config)
    ranker = VectorRanker(folder, encoder, VectorSearch(**manifest["search"]))
    ranker.check(*next(read_documents(folder)))
    return Retriever(documents, ranker, manifest)


def _write_ranker(
    num_documents: int, folder: Path, encoder: Encoder | None, search: VectorSearch | None, vectors: Path | None
) -> dict[str, Any]:
    """Write what the ranker reads; its settings, for the manifest."""
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
            raise ValueError(f"{vectors} has {num_vectors} vectors for {num_documents} documents. Embed them again.")
    return {"bm25": None, "search": write_search(folder / VECTORS, search or VectorSearch(), folder).model_dump()}


def _link(file: Path, to: Path) -> None:
    """The same file under another name; a copy where the file system has no such thing. Nobody writes to it."""
    try:
        os.link(file, to)
    except OSError:
        shutil.copyfile(file, to)


def _encoder(config: EmbeddingConfig) -> Encoder:
    from corpus_prep.search.encoder import Encoder  # brings torch, which BM25 does without

    return Encoder(config)
