"""The folder of a search index: its documents, and a manifest to check that it is intact."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from corpus_prep.read.documents import DocumentRow
from corpus_prep.read.pieces import cut
from corpus_prep.read.seen import TextSet

FORMAT = 3
DOCUMENT_SCHEMA = pa.schema(
    [("document_id", pa.large_string()), ("title", pa.large_string()), ("text", pa.large_string())]
)
DOCUMENTS_AT_ONCE = 4_096


def read_manifest(folder: Path, verify: bool) -> dict[str, Any]:
    """The manifest of a search index: its format, settings and files. `verify`: hash every file.

    Raises ValueError for a folder that is no search index, has another format, or is damaged.
    """
    path = folder / "manifest.json"
    if not path.is_file():
        raise ValueError(
            f"{folder} is not a search index: manifest.json is missing. Build one with build_index."
        )
    try:
        manifest = json.loads(path.read_bytes())
        written = manifest["format"]
        files = manifest["files"]
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(folder, f"manifest.json cannot be read: {error!r}") from error
    if written != FORMAT:
        raise ValueError(
            f"search index {folder} has format {written}, this version reads {FORMAT}. Build it"
            " again."
        )
    for name, expected in files.items():
        file = folder / name
        if not file.is_file():
            raise damaged(folder, f"{name} is missing")
        if file.stat().st_size != expected["num_bytes"]:
            raise damaged(
                folder, f"{name} has {file.stat().st_size} bytes, not {expected['num_bytes']}"
            )
        if verify and fingerprint(file) != expected:
            raise damaged(folder, f"the content of {name} changed")
    return manifest


def damaged(folder: Path, what: str) -> ValueError:
    """The error to raise for an index of which `what` is wrong; it says what to do."""
    return ValueError(f"search index {folder} is damaged: {what}. Delete it and build it again.")


def fingerprint(file: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file, as the manifest holds them. Raises OSError if the file
    cannot be read."""
    with file.open("rb") as content:
        return {
            "num_bytes": file.stat().st_size,
            "sha256": hashlib.file_digest(content, "sha256").hexdigest(),
        }


class DocumentsFile:
    """Writes the documents of an index, with a few thousand in memory at a time.

    Documents of more than `chunk_chars` are cut into pieces, a row each. content_hash: over every
    id, title and text, in order.
    """

    def __init__(self, path: Path, chunk_chars: int | None = None):
        self._chunk_chars = chunk_chars
        self.num_rows = 0
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, DOCUMENT_SCHEMA)
        self._digest = hashlib.sha256()
        self._seen = TextSet()
        self._pending: list[dict[str, str]] = []

    def add(self, document: DocumentRow) -> None:
        """Add a document, unless it was dropped. Raises ValueError for an id that another has."""
        if document.dropped_reason is not None:
            return
        if document.document_id in self._seen:
            raise ValueError(
                f"two documents have the id {document.document_id}. Give each its own."
            )
        self._seen.add(document.document_id)
        row = {name: getattr(document, name) for name in DOCUMENT_SCHEMA.names}
        for text in cut(row["text"], self._chunk_chars) if self._chunk_chars else [row["text"]]:
            self._digest.update(json.dumps([row["document_id"], row["title"], text]).encode())
            self._pending.append({**row, "text": text})
            self.num_rows += 1
            if len(self._pending) == DOCUMENTS_AT_ONCE:
                self._write()

    def _write(self) -> None:
        self._writer.write_batch(pa.RecordBatch.from_pylist(self._pending, DOCUMENT_SCHEMA))
        self._pending.clear()

    @property
    def num_documents(self) -> int:
        """Documents added so far; one that was cut into pieces counts once."""
        return len(self._seen)

    @property
    def content_hash(self) -> str:
        """SHA-256, in hex, over the documents added so far."""
        return self._digest.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._pending:
            self._write()
        self._writer.close()
        self._sink.close()
        if kind is None and not self.num_documents:
            raise ValueError(
                "no document to index: all were dropped or none was given. Check their"
                " dropped_reason."
            )


def read_documents(folder: Path) -> Iterator[tuple[str, str]]:
    """Title and text of every row, with a few thousand in memory.

    The file is not mapped, because everything that was read would stay in memory.
    """
    with pa.OSFile(str(folder / "documents.arrow")) as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            yield from zip(batch["title"].to_pylist(), batch["text"].to_pylist(), strict=True)


def open_documents(folder: Path) -> pa.Table:
    """The documents of an index folder, mapped into memory, one row per document or piece. Raises
    OSError or pyarrow.ArrowException for a file that is missing or damaged."""
    return pa.ipc.open_file(pa.memory_map(str(folder / "documents.arrow"))).read_all()
