"""Read a file of a corpus.

Readers yield every document and, with the reason, every record that cannot be one. datatrove's
readers only log such records and leave them out, so that nobody can count them.
"""

import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from corpus_prep.read.files import (
    ARCHIVES,
    LINES,
    PAGES,
    PLAIN,
    SUPPORTED,
    TABLES,
    Columns,
    Record,
    SourceFile,
    ending,
    printable,
)
from corpus_prep.read.pages import archived, page, pdf
from corpus_prep.read.records import json_lines, json_rows, parquet_rows, table_rows


def plain(source_file: SourceFile) -> Iterator[Record]:
    """Yield one record with the file's bytes as `text` and its stem as `file_name`.

    Yields a record `too_long` instead if the file is. Raises OSError or the decompressor's error
    for a file that cannot be read.
    """
    content = source_file.content(4)  # UTF-8 has at most 4 bytes per character
    if content is None:
        yield source_file.dropped("too_long")
    else:
        yield Record(
            source_file.place, source_file.source, {"text": content, "file_name": source_file.stem}
        )


READERS: dict[tuple[str, ...], Callable[[SourceFile], Iterator[Record]]] = {
    PLAIN: plain,
    PAGES: page,
    LINES: json_lines,
    TABLES: table_rows,
    ARCHIVES: archived,
    (".json",): json_rows,
    (".pdf",): pdf,
    (".parquet",): parquet_rows,
}


def records_in(file: Path, place: str, columns: Columns, max_chars: int) -> Iterator[Record]:
    """Everything in one file, in order. A file that cannot be read yields a reason."""
    source_file = SourceFile(file, place, printable(file), columns, max_chars)
    kind = next((k for k in SUPPORTED if ending(file.name).lower().startswith(k)), None)
    try:
        if kind is None:
            yield source_file.dropped("unsupported_type")
        elif not file.is_file():  # a dangling link, a pipe
            yield source_file.dropped("unreadable")
        else:
            yield from next(read for kinds, read in READERS.items() if kind in kinds)(source_file)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        remark = next(iter(str(error).splitlines()), repr(error))
        yield source_file.dropped("unreadable", remark)
