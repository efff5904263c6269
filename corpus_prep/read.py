"""Raw files to document rows. Every file and row comes out; one that cannot be used carries the reason why."""

import codecs
import gzip
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

DroppedReason = Literal[
    "bad_json", "binary", "duplicate_id", "empty", "encoding", "no_text", "too_long", "unreadable", "unsupported_type"
]
ID_COLUMNS = ("document_id", "id", "doc_id")
TEXT_COLUMNS = ("text", "contents", "content")
SOURCE_COLUMNS = ("source", "url")
LICENCE_COLUMNS = ("licence", "license")
SUPPORTED = (".txt", ".md", ".jsonl", ".jsonl.gz", ".parquet")
UTF16_AND_32_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
JSON_BYTES_PER_CHAR = 12  # the longest escape of one character: a surrogate pair, \ud83d\ude00
PARQUET_ROWS_AT_ONCE = 256
ROWS_BETWEEN_PROGRESS = 1_000
MAX_TITLE_CHARS = 80


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One document. Key: document_id, unique among all rows of a corpus, dropped ones included.

    source: the corpus' own source column, else the path (with `:line` or `:row`, counted from 1).
    num_chars: characters of the text as found; None where it could not be read.
    dropped_reason: None for a usable document. A dropped row has an empty text, save duplicate_id, which keeps its own.
    """

    document_id: str
    title: str
    text: str
    source: str = ""
    licence: str | None = None
    num_chars: int | None = None
    language: str | None = None
    score: float | None = None
    dropped_reason: DroppedReason | None = None


@dataclass
class CorpusCounts:
    """Rows so far: kept, and dropped by reason. Files: found and begun."""

    num_files: int = 0
    num_files_begun: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def num_rows(self) -> int:
        return self.kept + self.dropped.total()


@dataclass(frozen=True, slots=True)
class _Found:
    """A document as it lies in its file. place: path below the corpus (with position), its id where none is given."""

    place: str
    source: str
    fields: Mapping[str, object] = field(default_factory=dict)
    reason: DroppedReason | None = None


def read_corpus(
    path: str | Path,
    *,
    max_chars: int = 2_000_000,
    counts: CorpusCounts | None = None,
    progress: Callable[[CorpusCounts], None] | None = None,
) -> Iterator[DocumentRow]:
    """Stream the documents of a .txt, .md, .jsonl(.gz) or .parquet file, or of a folder of them (recursive, sorted).

    Files and folders whose names begin with a dot are left out; any other file of another type gives a row
    `unsupported_type`. Ids that are not given come from the path below the corpus, so they survive a move of the whole.
    `counts` is filled while reading; `progress` is called with it every 1,000 rows and at the end.

    Raises:
        ValueError: at once for a missing path or nothing of a supported type; at the end if no document was usable.
    """
    root = Path(path)
    files = _corpus_files(root)
    counts = CorpusCounts() if counts is None else counts
    counts.num_files = len(files)
    return _rows(root, files, max_chars, counts, progress or (lambda _: None))


def _corpus_files(root: Path) -> list[Path]:
    if not root.exists():
        raise ValueError(f"corpus {root} does not exist. Give a file or a folder of {', '.join(SUPPORTED)} files.")
    files = sorted(_walk(root)) if root.is_dir() else [root]
    if not any(file.name.lower().endswith(SUPPORTED) for file in files):
        found = f"has {len(files)} file(s), none" if root.is_dir() else "is not"
        raise ValueError(f"corpus {root} {found} of a supported type. Convert it to one of {', '.join(SUPPORTED)}.")
    return files


def _walk(root: Path) -> Iterator[Path]:
    """Files below root, links to folders followed once."""
    visited = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        subfolders[:] = [] if real in visited else [name for name in subfolders if not name.startswith(".")]
        if real not in visited:
            yield from (Path(folder, name) for name in names if not name.startswith("."))
        visited.add(real)


def _rows(
    root: Path, files: list[Path], max_chars: int, counts: CorpusCounts, progress: Callable[[CorpusCounts], None]
) -> Iterator[DocumentRow]:
    seen: set[str] = set()
    first_dropped = ""
    for file in files:
        counts.num_files_begun += 1
        for found in _found_in(file, _printable(file.relative_to(root) if root.is_dir() else file.name), max_chars):
            row = _row(found, seen, max_chars)
            if row.dropped_reason is None:
                counts.kept += 1
            else:
                counts.dropped[row.dropped_reason] += 1
                first_dropped = first_dropped or f"{found.source}: {row.dropped_reason}"
            yield row
            if counts.num_rows % ROWS_BETWEEN_PROGRESS == 0:
                progress(counts)
    progress(counts)
    if counts.kept == 0:
        reasons = ", ".join(f"{reason} {num}" for reason, num in sorted(counts.dropped.items())) or "no rows at all"
        raise ValueError(
            f"no usable document in corpus {root} ({reasons}; first: {first_dropped or files[0]}). Give UTF-8 .txt or "
            f".md files, or JSONL or Parquet with text in a column named {', '.join(TEXT_COLUMNS)}."
        )


def _found_in(file: Path, place: str, max_chars: int) -> Iterator[_Found]:
    source, name = _printable(file), file.name.lower()
    try:
        if not name.endswith(SUPPORTED):
            yield _Found(place, source, reason="unsupported_type")
        elif not file.is_file():  # a dangling link, a pipe
            yield _Found(place, source, reason="unreadable")
        elif name.endswith(".parquet"):
            yield from _found_in_parquet(file, place, source)
        elif name.endswith((".jsonl", ".jsonl.gz")):
            with gzip.open(file) if name.endswith(".gz") else file.open("rb") as lines:
                yield from _found_in_jsonl(cast(BinaryIO, lines), place, source, max_chars)
        elif file.stat().st_size > 4 * max_chars:  # UTF-8 has at most 4 bytes a character
            yield _Found(place, source, reason="too_long")
        else:
            yield _Found(place, source, {"text": file.read_bytes(), "file_name": _printable(file.stem)})
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        yield _Found(place, f"{source} ({str(error).splitlines()[0] if str(error) else error!r})", reason="unreadable")


def _found_in_parquet(file: Path, place: str, source: str) -> Iterator[_Found]:
    with pq.ParquetFile(file) as parquet:
        names = parquet.schema_arrow.names
        if not any(name in names for name in TEXT_COLUMNS):
            yield _Found(place, f"{source} (columns {', '.join(names)})", reason="no_text")
            return
        known = (*ID_COLUMNS, "title", *TEXT_COLUMNS, *SOURCE_COLUMNS, *LICENCE_COLUMNS)
        row_number = 0
        for batch in parquet.iter_batches(PARQUET_ROWS_AT_ONCE, columns=[name for name in names if name in known]):
            columns = {name: _undecoded(batch.column(name)) for name in batch.schema.names}
            for index in range(batch.num_rows):
                row_number += 1
                record = {name: column[index].as_py() for name, column in columns.items()}
                yield _Found(f"{place}:{row_number}", f"{source}:{row_number}", record)


def _undecoded(column: pa.Array) -> pa.Array:
    """Strings as bytes: Arrow does not check that they are UTF-8, and one bad value must not cost its batch."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.large_binary()) if is_text else column


def _found_in_jsonl(lines: BinaryIO, place: str, source: str, max_chars: int) -> Iterator[_Found]:
    max_bytes = JSON_BYTES_PER_CHAR * max_chars + 65_536
    line_number = 0
    while line := lines.readline(max_bytes):
        line_number += 1
        where = f"{place}:{line_number}", f"{source}:{line_number}"
        if len(line) == max_bytes and not line.endswith(b"\n"):
            while (rest := lines.readline(max_bytes)) and not rest.endswith(b"\n"):
                pass
            yield _Found(*where, reason="too_long")
        elif line.strip():
            yield _from_json(line, *where)


def _from_json(line: bytes, place: str, source: str) -> _Found:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return _Found(place, source, reason="encoding")
    except (ValueError, RecursionError):
        return _Found(place, source, reason="bad_json")
    if not isinstance(record, dict):
        return _Found(place, source, reason="bad_json")
    return _Found(place, source, record)


def _row(found: _Found, seen: set[str], max_chars: int) -> DocumentRow:
    fields = found.fields
    text, num_chars, reason = _text_of(found, max_chars)
    title, text = _title_and_text(fields, text)
    document_id = _plain(_first(fields, ID_COLUMNS)) or found.place
    if document_id in seen:
        reason = reason or "duplicate_id"
        document_id = f"{document_id}#{found.place}"
        while document_id in seen:
            document_id += "#"
    seen.add(document_id)
    source = _plain(_first(fields, SOURCE_COLUMNS)) or found.source
    licence = _plain(_first(fields, LICENCE_COLUMNS)) or None
    return DocumentRow(document_id, title, text, source, licence, num_chars, dropped_reason=reason)


def _text_of(found: _Found, max_chars: int) -> tuple[str, int | None, DroppedReason | None]:
    """The text, its length as found, and why it cannot be used."""
    value = _first(found.fields, TEXT_COLUMNS)
    has_column = any(name in found.fields for name in TEXT_COLUMNS)
    if found.reason is not None:
        return "", None, found.reason
    if value is None and has_column:
        return "", 0, "empty"
    if not isinstance(value, str | bytes):
        return "", None, "no_text"
    content = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    if content.startswith(UTF16_AND_32_MARKS):
        return "", None, "encoding"
    if b"\0" in content:
        return "", None, "binary"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "", None, "encoding"
    if not text.strip():
        return "", len(text), "empty"
    return (text, len(text), None) if len(text) <= max_chars else ("", len(text), "too_long")


def _title_and_text(fields: Mapping[str, object], text: str) -> tuple[str, str]:
    """The given title; else a quoted first line of `contents` (taken out of the text, as in Pyserini's and FlashRAG's
    Wikipedia dumps), a markdown heading, the file's name, or the beginning of the first line."""
    if title := _plain(fields.get("title")).strip():
        return title, text
    first, _, rest = text.lstrip().partition("\n")
    first = first.strip()
    if "contents" in fields and "text" not in fields and rest.strip() and re.fullmatch(r'".+"', first):
        return first[1:-1], rest
    if heading := re.match(r"#{1,6}\s+(.*\S)", first):
        return re.sub(r"\s+#+$", "", heading[1]), text
    return str(fields.get("file_name") or first[:MAX_TITLE_CHARS]), text


def _first(fields: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _plain(value: object) -> str:
    """A short value as text that can be stored; no value, or one that is no text and no whole number, is ''."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str | int):
        return ""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _printable(path: Path | str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
