"""Read files of many documents: JSON, JSON lines, CSV, Parquet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.read.files import Record, SourceFile

JSON_BYTES_PER_CHAR = 12  # the longest escape of one character: a surrogate pair, \ud83d\ude00
OTHER_BYTES = 65_536  # allowance per record for fields other than its text
# limit of a JSON object that holds its rows in a list, since it is read whole
WRAPPED_BYTES = 1 << 26
# read without pre-buffering: Arrow's read-ahead keeps the whole file in memory
PARQUET_ROWS_AT_ONCE = 256
CHUNK = 1 << 20
BETWEEN = re.compile(r"[ \t\r\n,]*")  # two items of a JSON list


def json_lines(source_file: SourceFile) -> Iterator[Record]:
    """Yield one record per line that is not blank. Lines are counted from 1.

    A line is dropped, with the reason, if it is too long for a document of `max_chars`, not UTF-8
    or no JSON object. Raises OSError or the decompressor's error for a file that cannot be read.
    """
    with source_file.stream() as lines:
        max_bytes = _record_bytes(source_file)
        number = 0
        while line := lines.readline(max_bytes):
            number += 1
            if len(line) == max_bytes and not line.endswith(b"\n"):
                while (rest := lines.readline(max_bytes)) and not rest.endswith(b"\n"):
                    pass
                yield _dropped(source_file, number, "too_long")
            elif line.strip():
                yield _from_line(source_file, number, line)


def _from_line(source_file: SourceFile, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return _dropped(source_file, number, "encoding")
    except (ValueError, RecursionError):
        return _dropped(source_file, number, "bad_json")
    return _record(source_file, number, record)


def _record(source_file: SourceFile, number: int, record: Any) -> Record:
    if isinstance(record, dict):
        return source_file.at(number, record)
    return _dropped(source_file, number, "bad_json")


def _dropped(source_file: SourceFile, number: int, reason: Any, remark: str = "") -> Record:
    source = f"{source_file.source}:{number}"
    if remark:
        source = f"{source} ({remark})"
    return Record(f"{source_file.place}:{number}", source, reason=reason)


def json_rows(source_file: SourceFile) -> Iterator[Record]:
    """The rows of a JSON file.

    A list yields its objects, read one by one. An object yields its first list of objects, or
    itself if it has a text or no such list.
    """
    with source_file.stream() as stream:
        beginning = stream.read(CHUNK)
        if beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
            yield from _listed(source_file, beginning, stream)
            return
        content = beginning + stream.read(WRAPPED_BYTES)
    if len(content) > WRAPPED_BYTES:
        yield source_file.dropped(
            "too_long", "one JSON object of more than 64 MiB: convert it to JSON lines"
        )
        return
    try:
        whole = json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        yield source_file.dropped("encoding")
    except (ValueError, RecursionError):
        yield source_file.dropped("bad_json")
    else:
        if not isinstance(whole, dict):
            yield source_file.dropped("bad_json", "one value instead of an object or a list")
            return
        rows = None
        if not any(name in whole for name in source_file.columns.text):
            rows = first_list_of_objects(whole)
        rows = rows or [whole]
        yield from (_record(source_file, number, row) for number, row in enumerate(rows, 1))


def first_list_of_objects(content: Mapping[str, Any]) -> list[Any] | None:
    """The rows in a JSON object that wraps them; None if it has no list that begins with an object.

    >>> first_list_of_objects({"version": 1, "names": ["a"], "data": [{"text": "a"}]})
    [{'text': 'a'}]
    """
    for value in content.values():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return value
    return None


def _listed(source_file: SourceFile, beginning: bytes, stream: BinaryIO) -> Iterator[Record]:
    """The items of a JSON list.

    Whenever an item is incomplete, twice as much is read, so nothing is parsed more than a few
    times. A broken item ends the file, since nothing says where the next one begins.
    """
    decoder = json.JSONDecoder()
    number = 0
    most = _record_bytes(source_file)
    text = io.TextIOWrapper(
        io.BufferedReader(_JoinedBytes(beginning, stream)), encoding="utf-8-sig"
    )
    pending = ""
    at = 0  # where the next item begins
    chunk = CHUNK
    try:
        pending = text.read(chunk).lstrip()[1:]
        while True:
            if between := BETWEEN.match(pending, at):
                at = between.end()
            if pending.startswith("]", at):
                return
            try:
                record, end = decoder.raw_decode(pending, at)
            except ValueError:
                record = None
                end = len(pending)
            if end == len(pending):  # incomplete, or a number that might continue
                more = text.read(chunk)
                if not more:
                    yield _dropped(source_file, number + 1, "bad_json")
                    return
                if len(pending) - at > most:
                    yield _dropped(source_file, number + 1, "too_long")
                    return
                pending = pending[at:] + more
                at = 0
                chunk = 2 * chunk
                continue
            number = number + 1
            at = end
            chunk = CHUNK
            yield _record(source_file, number, record)
    except UnicodeDecodeError:
        yield _dropped(source_file, number + 1, "encoding")
    except RecursionError:
        yield _dropped(source_file, number + 1, "bad_json")


class _JoinedBytes(io.RawIOBase):
    """A stream of bytes that were already read, followed by the rest."""

    def __init__(self, beginning: bytes, rest: BinaryIO) -> None:
        self._parts = [io.BytesIO(beginning), rest]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._parts:
            if data := self._parts[0].read(len(buffer)):
                buffer[: len(data)] = data
                return len(data)
            self._parts.pop(0)
        return 0


def table_rows(source_file: SourceFile) -> Iterator[Record]:
    """The rows of a CSV file with a header line; a .tsv is separated by tabs.

    Values are passed on as bytes, so that one that is not UTF-8 does not make the file unreadable.
    """
    csv.field_size_limit(max(csv.field_size_limit(), source_file.max_chars + OTHER_BYTES))
    delimiter = ","
    if ".tsv" in source_file.file.name.lower():
        delimiter = "\t"
    with source_file.stream() as stream:
        text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape", newline="")
        lines = _lines(text, _record_bytes(source_file))
        number = 0
        try:
            names = next(csv.reader(lines, delimiter=delimiter), [])
            if not any(name in names for name in source_file.columns.text):
                yield source_file.dropped("no_text", f"columns {', '.join(map(_shown, names))}")
                return
            for number, (row, surplus) in enumerate(csv_rows(lines, delimiter, names), 1):
                if surplus:
                    yield _dropped(source_file, number, "unreadable", "more values than columns")
                    continue
                yield source_file.at(
                    number, {n: _bytes(v) for n, v in row.items() if n in source_file.columns.all}
                )
        except csv.Error as error:
            yield source_file.dropped("unreadable", f"after row {number}: {error}")


def csv_rows(
    lines: Iterable[str], delimiter: str, names: Sequence[str] | None = None
) -> Iterator[tuple[dict[str, str | None], list[str]]]:
    """Yield the rows of a CSV file, each with the values beyond its columns that are not blank.

    `names` are those of the columns; None: the first line's. A column without a value is None.
    Raises csv.Error for a quote that is never closed, which would turn the rest of the file into
    one value.

    >>> list(csv_rows(["id,text", "1,one, two", "2,"], ","))
    [({'id': '1', 'text': 'one'}, [' two']), ({'id': '2', 'text': ''}, [])]
    """
    is_read = False

    def watched() -> Iterator[str]:
        nonlocal is_read
        yield from lines
        is_read = True

    for row in csv.DictReader(watched(), names, delimiter=delimiter):
        if is_read:  # asked for one more line after the last: the row was open
            raise csv.Error("a quote is never closed")
        surplus = row.pop(None, None) or []  # type: ignore[call-overload]
        yield row, [value for value in surplus if value.strip()]


def _lines(text: io.TextIOWrapper, most: int) -> Iterator[str]:
    """The lines of a CSV file.

    Raises csv.Error at a line of `most` characters: what follows may be inside or outside quotes,
    so the rest of the file cannot be read.
    """
    while line := text.readline(most):
        if len(line) == most and not line.endswith(("\n", "\r")):
            raise csv.Error(f"a line of more than {most} letters")
        yield line


def _bytes(value: str | None) -> bytes | None:
    if value is None:
        return None
    return value.encode("utf-8", "surrogateescape")


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def parquet_rows(source_file: SourceFile) -> Iterator[Record]:
    """Yield one record per row of a Parquet file, with those of its columns that `columns` names.

    A file without a column of texts yields one record `no_text`, which lists its columns. Raises
    OSError or pyarrow.ArrowException for a file that cannot be read.
    """
    columns = source_file.columns
    with pq.ParquetFile(source_file.file, pre_buffer=False) as parquet:
        names = parquet.schema_arrow.names
        if not any(name in names for name in columns.text):
            yield source_file.dropped("no_text", f"columns {', '.join(names)}")
            return
        number = 0
        for batch in parquet.iter_batches(
            PARQUET_ROWS_AT_ONCE, columns=[n for n in names if n in columns.all]
        ):
            values = {name: undecoded(batch.column(name)) for name in batch.schema.names}
            for index in range(batch.num_rows):
                number += 1
                yield source_file.at(
                    number, {name: column[index].as_py() for name, column in values.items()}
                )


def undecoded(column: pa.Array) -> pa.Array:
    """Strings as bytes.

    Arrow does not check that they are UTF-8, and one bad value must not make its batch unreadable.
    """
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.large_binary())
    return column


def _record_bytes(source_file: SourceFile) -> int:
    return JSON_BYTES_PER_CHAR * source_file.max_chars + OTHER_BYTES
