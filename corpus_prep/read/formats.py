"""What lies in a file of a corpus: each document, or each thing that cannot be one with the reason."""

import codecs
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

DroppedReason = Literal[
    "bad_json", "binary", "duplicate_id", "empty", "encoding", "no_text", "too_long", "unreadable", "unsupported_type"
]
PLAIN, PAGES, LINES = (".txt", ".md"), (".html", ".htm"), (".jsonl", ".jsonl.gz", ".jsonl.zst")
SUPPORTED = (*PLAIN, *PAGES, *LINES, ".parquet")
UTF16_AND_32_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
JSON_BYTES_PER_CHAR = 12  # the longest escape of one character: a surrogate pair, \ud83d\ude00
PAGE_BYTES_PER_CHAR = 16  # of a web page, markup and scripts included, for each character of text
PARQUET_ROWS_AT_ONCE = 256  # unbuffered: Arrow's read-ahead keeps every byte of the file until its end


class Columns(BaseModel):
    """Names under which a corpus may hold each field; the first that a row has a value for counts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: tuple[str, ...] = ("document_id", "id", "doc_id")
    title: tuple[str, ...] = ("title",)
    text: tuple[str, ...] = ("text", "contents", "content")
    source: tuple[str, ...] = ("source", "url")
    licence: tuple[str, ...] = ("licence", "license")
    score: tuple[str, ...] = ()

    @property
    def all(self) -> set[str]:
        return {*self.id, *self.title, *self.text, *self.source, *self.licence, *self.score}


@dataclass(frozen=True, slots=True)
class Found:
    """A document as it lies in its file. place: path below the corpus (with position), its id where none is given."""

    place: str
    source: str
    fields: Mapping[str, object] = field(default_factory=dict)
    reason: DroppedReason | None = None


def found_in(file: Path, place: str, columns: Columns, max_chars: int) -> Iterator[Found]:
    """Everything in one file, in order. What is wrong with it comes out as a reason."""
    source, name = printable(file), file.name.lower()
    try:
        if not name.endswith(SUPPORTED):
            yield Found(place, source, reason="unsupported_type")
        elif not file.is_file():  # a dangling link, a pipe
            yield Found(place, source, reason="unreadable")
        elif name.endswith(".parquet"):
            yield from _in_parquet(file, place, source, columns)
        elif name.endswith(LINES):
            with _opened(file) as lines:
                yield from _in_jsonl(lines, place, source, max_chars)
        elif file.stat().st_size > (PAGE_BYTES_PER_CHAR if name.endswith(PAGES) else 4) * max_chars:
            yield Found(place, source, reason="too_long")  # UTF-8 has at most 4 bytes a character
        elif name.endswith(PAGES):
            yield _page(file.read_bytes(), place, source, printable(file.stem))
        else:
            yield Found(place, source, {"text": file.read_bytes(), "file_name": printable(file.stem)})
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        yield Found(place, f"{source} ({str(error).splitlines()[0] if str(error) else error!r})", reason="unreadable")


def _opened(file: Path) -> BinaryIO:
    if file.name.lower().endswith(".gz"):
        return cast(BinaryIO, gzip.open(file))
    if file.name.lower().endswith(".zst"):
        return cast(BinaryIO, io.BufferedReader(pa.input_stream(str(file), compression="zstd")))  # type: ignore[arg-type]
    return file.open("rb")


def _in_parquet(file: Path, place: str, source: str, columns: Columns) -> Iterator[Found]:
    with pq.ParquetFile(file, pre_buffer=False) as parquet:
        names = parquet.schema_arrow.names
        if not any(name in names for name in columns.text):
            yield Found(place, f"{source} (columns {', '.join(names)})", reason="no_text")
            return
        row_number = 0
        for batch in parquet.iter_batches(PARQUET_ROWS_AT_ONCE, columns=[n for n in names if n in columns.all]):
            values = {name: undecoded(batch.column(name)) for name in batch.schema.names}
            for index in range(batch.num_rows):
                row_number += 1
                record = {name: column[index].as_py() for name, column in values.items()}
                yield Found(f"{place}:{row_number}", f"{source}:{row_number}", record)


def undecoded(column: pa.Array) -> pa.Array:
    """Strings as bytes: Arrow does not check that they are UTF-8, and one bad value must not cost its batch."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.large_binary()) if is_text else column


def _in_jsonl(lines: BinaryIO, place: str, source: str, max_chars: int) -> Iterator[Found]:
    max_bytes = JSON_BYTES_PER_CHAR * max_chars + 65_536
    line_number = 0
    while line := lines.readline(max_bytes):
        line_number += 1
        where = f"{place}:{line_number}", f"{source}:{line_number}"
        if len(line) == max_bytes and not line.endswith(b"\n"):
            while (rest := lines.readline(max_bytes)) and not rest.endswith(b"\n"):
                pass
            yield Found(*where, reason="too_long")
        elif line.strip():
            yield _from_json(line, *where)


def _from_json(line: bytes, place: str, source: str) -> Found:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Found(place, source, reason="encoding")
    except (ValueError, RecursionError):
        return Found(place, source, reason="bad_json")
    if not isinstance(record, dict):
        return Found(place, source, reason="bad_json")
    return Found(place, source, record)


def _page(content: bytes, place: str, source: str, name: str) -> Found:
    """The article of a web page, without menus and footers; all of its text where none stands out."""
    import lxml.etree as etree
    import trafilatura  # 0.4 s
    from lxml import html

    if b"\0" in content:
        return Found(place, source, {"text": content})  # named binary, or UTF-16, by whoever decodes it
    try:
        tree = html.fromstring(content)
    except (etree.ParserError, ValueError):
        return Found(place, source, {"text": b""})
    etree.strip_elements(tree, "script", "style", with_tail=False)
    title = " ".join(tree.findtext(".//title", "").split())
    text = trafilatura.extract(tree) or "\n".join(line for line in map(str.strip, tree.itertext()) if line)
    return Found(place, source, {"text": text, "title": title, "file_name": name})


def printable(path: Path | str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")
