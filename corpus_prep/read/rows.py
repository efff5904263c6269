"""Read the rows of a file: of a benchmark, of given tasks, of seeds."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.read.files import open_decompressed
from corpus_prep.read.records import csv_rows, first_list_of_objects


def read_rows(file: Path) -> Iterator[Any]:
    """The rows of a file of a type in ROW_FILES, in order.

    A row is a dict for a table, any value for a line of JSON. The rows of a JSON file are its list,
    or the first list of objects in its object. Raises OSError or ValueError, which names the file,
    if it cannot be read.
    """
    try:
        yield from _rows_of(file)
    except (
        ValueError,
        csv.Error,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        gzip.BadGzipFile,
        pa.ArrowException,
    ) as problem:
        raise ValueError(f"{file} cannot be read: {problem}") from problem


def _rows_of(file: Path) -> Iterator[Any]:
    if file.name.endswith(".parquet"):
        with pq.ParquetFile(file, pre_buffer=False) as parquet:
            for batch in parquet.iter_batches(256):
                yield from batch.to_pylist()
    elif file.name.endswith((".csv", ".tsv")):
        csv.field_size_limit(sys.maxsize)  # a cell may hold a long context
        with file.open(encoding="utf-8-sig", newline="") as lines:
            delimiter = "\t" if file.name.endswith(".tsv") else ","
            for number, (row, surplus) in enumerate(csv_rows(lines, delimiter), start=1):
                if surplus:
                    raise ValueError(
                        f"row {number} has more values than the first line has names: a value that"
                        " holds a delimiter needs quotes around it"
                    )
                yield row
    elif file.name.endswith(".json"):
        yield from _top_rows(json.loads(file.read_text(encoding="utf-8-sig")))
    else:
        with open_decompressed(file) as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def _top_rows(content: Any) -> list[Any]:
    """The rows of a JSON file: its list, or the first list of objects in its object, or that
    object."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        raise ValueError("it holds one value instead of an object or a list")
    return first_list_of_objects(content) or [content]
