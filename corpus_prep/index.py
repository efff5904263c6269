"""Documents to a search index, and the one Retriever that rollouts use: BM25 where there is no embedding model.

An index folder holds `documents.arrow` (memory-mapped), the ranker's arrays, and `manifest.json`: content hash,
settings, and size and hash of every file. It is written beside its place and renamed when whole.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from corpus_prep.bm25 import BM25_SETTINGS, Bm25Ranker, write_bm25
from corpus_prep.read import DocumentRow

if TYPE_CHECKING:
    from corpus_prep.embedding import Encoder

FORMAT = 1
DOCUMENT_SCHEMA = pa.schema(
    [("document_id", pa.large_string()), ("title", pa.large_string()), ("text", pa.large_string())]
)
DOCUMENTS_AT_ONCE = 4_096


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

    @model_validator(mode="after")
    def _revision_belongs_to_model(self) -> Self:
        named = {"model", "revision"} & self.model_fields_set
        if named == {"model"} and self.model != EmbeddingConfig.model_fields["model"].default:
            raise ValueError(f"embedding model {self.model}: name its revision too (null for a local folder).")
        if self.revision is None and not Path(self.model).is_dir():
            raise ValueError(f"embedding model {self.model} is no local folder: pin its revision, a commit hash.")
        return self


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


def build_index(documents: Iterable[DocumentRow], folder: str | Path, embedding: EmbeddingConfig | None = None) -> Path:
    """Write an index of the documents that were not dropped; BM25 without an embedding model.

    Raises:
        ValueError: folder has content, two documents share an id, none is usable, or the model cannot be loaded.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"index folder {folder} exists and is not empty. Delete it or give another.")
    encoder = _encoder(embedding) if embedding else None
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        content_hash = _write_documents(documents, partial / "documents.arrow")
        table = _open_documents(partial)
        if encoder:
            encoder.write_vectors(_titles_and_texts(table), table.num_rows, partial)
        else:
            write_bm25(_titles_and_texts(table), partial)
        manifest = {
            "format": FORMAT,
            "num_documents": table.num_rows,
            "content_hash": content_hash,
            "embedding": embedding and embedding.model_dump(),
            "bm25": None if embedding else BM25_SETTINGS,
            "files": {file.name: _fingerprint(file) for file in sorted(partial.iterdir())},
        }
        (partial / "manifest.json").write_text(json.dumps(manifest, indent=1))
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def load_index(folder: str | Path, device: str | None = None, verify: bool = True) -> Retriever:
    """Open an index folder. device: for the embedding model, in place of the one it was built on.

    verify: hash every file (about 1 s per GB); sizes are always checked.

    Raises:
        ValueError: no index, another format, a missing or changed file, or a model that is not the index's.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder, verify)
    documents = _open_documents(folder)
    if documents.num_rows != manifest["num_documents"]:
        raise _damaged(folder, f"it holds {documents.num_rows} documents, not {manifest['num_documents']}")
    if manifest["embedding"] is None:
        return Retriever(documents, Bm25Ranker(folder, documents.num_rows), manifest)
    config = EmbeddingConfig(**manifest["embedding"])
    encoder = _encoder(config.model_copy(update={"device": device}) if device else config)
    return Retriever(documents, encoder.open_vectors(folder, next(_titles_and_texts(documents))), manifest)


def _encoder(config: EmbeddingConfig) -> "Encoder":
    from corpus_prep.embedding import Encoder  # brings torch, which BM25 does without

    return Encoder(config)


def _titles_and_texts(documents: pa.Table) -> Iterator[tuple[str, str]]:
    for batch in documents.to_batches():
        yield from zip(batch["title"].to_pylist(), batch["text"].to_pylist(), strict=True)


# Folder


def _read_manifest(folder: Path, verify: bool) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no search index: manifest.json is missing. Build one with build_index.")
    try:
        manifest = json.loads(path.read_bytes())
        written, files = manifest["format"], manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(folder, f"manifest.json cannot be read: {error!r}") from error
    if written != FORMAT:
        raise ValueError(f"search index {folder} has format {written}, this version reads {FORMAT}. Build it again.")
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            raise _damaged(folder, f"{name} is missing")
        if file.stat().st_size != expected["num_bytes"]:
            raise _damaged(folder, f"{name} has {file.stat().st_size} bytes, not {expected['num_bytes']}")
        if verify and _fingerprint(file) != expected:
            raise _damaged(folder, f"the content of {name} changed")
    return manifest


def _damaged(folder: Path, what: str) -> ValueError:
    return ValueError(f"search index {folder} is damaged: {what}. Delete it and build it again.")


def _fingerprint(file: Path) -> dict[str, Any]:
    with file.open("rb") as content:
        return {"num_bytes": file.stat().st_size, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def _write_documents(documents: Iterable[DocumentRow], path: Path) -> str:
    """Returns the content hash: of every id, title and text, in order, with their lengths."""
    digest, seen = hashlib.sha256(), set()
    pending: list[dict[str, str]] = []
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, DOCUMENT_SCHEMA) as writer:
        for document in documents:
            if document.dropped_reason is not None:
                continue
            if document.document_id in seen:
                raise ValueError(f"two documents have the id {document.document_id}. Give each its own.")
            seen.add(document.document_id)
            row = {name: getattr(document, name) for name in DOCUMENT_SCHEMA.names}
            digest.update(json.dumps(list(row.values())).encode())
            pending.append(row)
            if len(pending) == DOCUMENTS_AT_ONCE:
                writer.write_batch(pa.RecordBatch.from_pylist(pending, DOCUMENT_SCHEMA))
                pending.clear()
        if pending:
            writer.write_batch(pa.RecordBatch.from_pylist(pending, DOCUMENT_SCHEMA))
    if not seen:
        raise ValueError("no document to index: all were dropped or none was given. See their dropped_reason.")
    return digest.hexdigest()


def _open_documents(folder: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(folder / "documents.arrow"))).read_all()
