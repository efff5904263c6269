"""Files of a corpus: the supported types, how they are opened, and their records.

All but Parquet may be compressed: `.gz`, `.bz2`, `.xz` or `.zst` follows the type's own ending.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

DroppedReason = Literal[
    "bad_json",
    "binary",
    "duplicate_id",
    "empty",
    "encoding",
    "no_text",
    "too_long",
    "unreadable",
    "unsupported_type",
]
PLAIN = (".txt", ".md")
PAGES = (".html", ".htm")
LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
ARCHIVES = (".warc", ".wet")
SUPPORTED = (*PLAIN, *PAGES, *LINES, ".json", *TABLES, *ARCHIVES, ".pdf", ".parquet")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
UTF16_AND_32_MARKS = (
    codecs.BOM_UTF16_LE,
    codecs.BOM_UTF16_BE,
    codecs.BOM_UTF32_LE,
    codecs.BOM_UTF32_BE,
)
PAGE_BYTES_PER_CHAR = 16  # a web page's bytes, with markup and scripts, per character of text
PDF_BYTES_PER_CHAR = 64  # a PDF's bytes, with fonts and pictures


class Columns(BaseModel):
    """Names under which a corpus may hold each field; the first one with a value in a row
    counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: tuple[str, ...] = Field(
        default=("document_id", "id", "doc_id"),
        description="columns of ids; empty: a document's id is its path below the corpus",
    )
    title: tuple[str, ...] = Field(default=("title",), description="columns of titles")
    text: tuple[str, ...] = Field(
        default=("text", "contents", "content"), description="columns of texts"
    )
    source: tuple[str, ...] = Field(
        default=("source", "url"),
        description="columns of a document's source, such as a URL",
    )
    licence: tuple[str, ...] = Field(
        default=("licence", "license"), description="columns of licences"
    )
    score: tuple[str, ...] = Field(
        default=(), description="columns of quality scores, for quality.min_score"
    )
    date: tuple[str, ...] = Field(
        default=(), description='columns of dates, for duplicates.keep="newest"'
    )

    @property
    def all(self) -> set[str]:
        """The names of the columns of all fields."""
        return {
            *self.id,
            *self.title,
            *self.text,
            *self.source,
            *self.licence,
            *self.score,
            *self.date,
        }


@dataclass(frozen=True, slots=True)
class Record:
    """A document as found in its file. place: path below the corpus (with position), which is the
    id if none is given."""

    place: str
    source: str
    fields: Mapping[str, object] = field(default_factory=dict)
    reason: DroppedReason | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read: its path, how its documents are named, the columns to read, and the longest
    text allowed. Decompresses it."""

    file: Path
    place: str
    source: str
    columns: Columns
    max_chars: int

    @property
    def stem(self) -> str:
        """The file's name without its endings."""
        name = printable(self.file.name)
        return name[: -len(ending(name))]

    def stream(self) -> BinaryIO:
        """Open the file to read its decompressed bytes. Raises OSError if it cannot be opened."""
        return open_decompressed(self.file)

    def content(self, bytes_per_char: int) -> bytes | None:
        """The whole decompressed content.

        None if it has more than `bytes_per_char` * `max_chars` bytes. Raises OSError or the
        decompressor's error for a file that cannot be read.
        """
        most = bytes_per_char * self.max_chars
        if self.file.stat().st_size > most:
            return None
        with self.stream() as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            return None
        return content

    def dropped(self, reason: DroppedReason, remark: str = "") -> Record:
        """A record without fields for the whole file, with the reason; `remark` is added to its
        source."""
        source = self.source
        if remark:
            source = f"{source} ({remark})"
        return Record(self.place, source, reason=reason)

    def at(self, number: int, fields: Mapping[str, object]) -> Record:
        """A record of the file with these fields; its place and source end in `number`, counted
        from 1."""
        return Record(f"{self.place}:{number}", f"{self.source}:{number}", fields)


def open_decompressed(path: Path) -> BinaryIO:
    """Open a file to read its bytes, decompressed if its name ends like one of COMPRESSED.

    Raises OSError if it cannot be opened.
    """
    name = path.name.lower()
    if name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(path))
    if name.endswith(".bz2"):
        return cast(BinaryIO, bz2.open(path))
    if name.endswith(".xz"):
        return cast(BinaryIO, lzma.open(path))
    if name.endswith(".zst"):
        raw = pa.input_stream(str(path), compression="zstd")
        return cast(BinaryIO, io.BufferedReader(raw))  # type: ignore[arg-type]
    return path.open("rb")


def ending(name: str) -> str:
    """The ending of a file of a supported type, with that of its compression; else ''.

    >>> ending("A.JSONL.gz"), ending("a.parquet"), ending("a.parquet.gz"), ending("a.gz")
    ('.JSONL.gz', '.parquet', '', '')
    """
    lower = name.lower()
    packed = next((suffix for suffix in COMPRESSED if lower.endswith(suffix)), "")
    inner = lower.removesuffix(packed)
    own = next((suffix for suffix in SUPPORTED if inner.endswith(suffix)), "")
    if not own or (packed and own == ".parquet"):
        return ""
    return name[-len(own + packed) :]


def is_supported(name: str) -> bool:
    """Whether `ending` knows the type of a file of this name."""
    return bool(ending(name))


def walk(root: Path) -> Iterator[Path]:
    """Yield the files below a folder in a fixed order, except names that begin with a dot.

    Links to folders are followed, each folder once.
    """
    visited = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def printable(path: Path | str) -> str:
    """A path as text that can be stored: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")
