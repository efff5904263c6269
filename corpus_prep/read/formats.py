"""Read a file of a corpus.

It yields each document, and each record that cannot be one with the reason.
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
    Found,
    Opened,
    ending,
    printable,
)
from corpus_prep.read.pages import archived, page, pdf
from corpus_prep.read.records import json_lines, json_rows, parquet_rows, table_rows


def plain(opened: Opened) -> Iterator[Found]:
    content = opened.content(4)  # UTF-8 has at most 4 bytes per character
    if content is None:
        yield opened.dropped("too_long")
    else:
        yield Found(opened.place, opened.source, {"text": content, "file_name": opened.stem})


READERS: dict[tuple[str, ...], Callable[[Opened], Iterator[Found]]] = {
    PLAIN: plain,
    PAGES: page,
    LINES: json_lines,
    TABLES: table_rows,
    ARCHIVES: archived,
    (".json",): json_rows,
    (".pdf",): pdf,
    (".parquet",): parquet_rows,
}


def found_in(file: Path, place: str, columns: Columns, max_chars: int) -> Iterator[Found]:
    """Everything in one file, in order. A file that cannot be read yields a reason."""
    opened = Opened(file, place, printable(file), columns, max_chars)
    kind = next((k for k in SUPPORTED if ending(file.name).lower().startswith(k)), None)
    try:
        if kind is None:
            yield opened.dropped("unsupported_type")
        elif not file.is_file():  # a dangling link, a pipe
            yield opened.dropped("unreadable")
        else:
            yield from next(read for kinds, read in READERS.items() if kind in kinds)(opened)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        remark = next(iter(str(error).splitlines()), repr(error))
        yield opened.dropped("unreadable", remark)
