"""Export the result of a query as CSV, JSON or Parquet: batch by batch, every value exact.

In CSV and JSON, dates, times and intervals are ISO 8601; lists, structs and maps are JSON; bytes
are hexadecimal. In CSV a null is an empty field and an empty string is `""`. JSON has no number for
NaN, infinities and long decimals: these are written as strings.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

# types of most values, for the fast path
NUMBERS = (int, float)
AS_THEY_ARE = (str, int, bool, type(None))
QUOTED = re.compile(r'[",\r\n]|^\s|\s$|^$')


def csv_lines(reader: pa.RecordBatchReader) -> Iterator[str]:
    """CSV with a header as in RFC 4180, except that lines end in a single newline."""
    yield _csv_line(reader.schema.names)
    for row in _rows(reader):
        yield _csv_line(row)


def json_lines(reader: pa.RecordBatchReader) -> Iterator[str]:
    """A JSON array with one object per row, each on its own line.

    Raises ValueError if two columns share a name.
    """
    names = _distinct(reader.schema)
    is_empty = True
    for row in _rows(reader):
        before = "[\n" if is_empty else ",\n"
        yield before + _as_json(dict(zip(names, row, strict=True)))
        is_empty = False
    if is_empty:
        yield "[]\n"
    else:
        yield "\n]\n"


def write_parquet(reader: pa.RecordBatchReader, file: IO[bytes]) -> None:
    """Write Arrow batches as Parquet; no row becomes a Python object.

    Raises ValueError if two columns share a name.
    """
    _distinct(reader.schema)
    with pq.ParquetWriter(file, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)


def first_rows(reader: pa.RecordBatchReader, count: int) -> tuple[list[dict[str, Any]], bool]:
    """At most `count` rows, and whether there are more.

    A repeated name is numbered: `run`, `run (2)`.
    """
    seen: Counter[str] = Counter()
    names = []
    for original in reader.schema.names:
        name = original
        seen[name] += 1
        if seen[name] > 1:
            name = f"{name} ({seen[name]})"
        names.append(name)
    rows = []
    for row in _rows(reader):
        if len(rows) == count:
            return rows, True
        rows.append(dict(zip(names, row, strict=True)))
    return rows, False


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        try:
            columns = [column.to_pylist(maps_as_pydicts="strict") for column in batch.columns]
        except OverflowError as problem:
            raise ValueError(
                f"a date or time is beyond the year 9999 ({problem}): cast it to varchar"
            ) from problem
        yield from zip(*columns, strict=True)


def _distinct(schema: pa.Schema) -> list[str]:
    repeated = sorted(name for name, count in Counter(schema.names).items() if count > 1)
    if repeated:
        raise ValueError(f"several columns are named {', '.join(repeated)}: rename them with `as`")
    return schema.names


def _csv_line(values: Any) -> str:
    return ",".join(map(_csv_field, values)) + "\n"


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    if type(value) in NUMBERS:
        return str(value)
    value = _plain(value)
    text = _as_json(value) if isinstance(value, bool | dict | list) else str(value)
    if not QUOTED.search(text):
        return text
    return '"' + text.replace('"', '""') + '"'


def _as_json(value: Any) -> str:
    return json.dumps(_json_value(value), ensure_ascii=False, allow_nan=False)


def _json_value(value: Any) -> Any:
    if type(value) in AS_THEY_ARE:
        return value
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    value = _plain(value)
    if isinstance(value, Decimal):
        # a number only if a reader of the JSON gets the same number back
        if Decimal(repr(float(value))) == value:
            return float(value)
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _plain(value: Any) -> Any:
    """A value of one of Python's richer types, as text or number."""
    if isinstance(value, pa.MonthDayNano):
        seconds = Decimal(value.nanoseconds).scaleb(-9).normalize()
        return f"P{value.months}M{value.days}DT{seconds:f}S"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if (
        isinstance(value, Decimal)
        and value == value.to_integral_value()
        and value.as_tuple().exponent == 0
    ):
        return int(value)  # DuckDB's sums of integers
    return value
