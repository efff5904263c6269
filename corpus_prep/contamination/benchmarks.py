"""Evaluation sets as passages: every text in them that a document of the corpus might contain.

A benchmark is a .json, .jsonl(.gz), .csv, .tsv or .parquet file, or a folder of such files. Its
rows are searched at every depth for fields that hold questions, answers or contexts; a list of
strings or a table counts as one text. If one field holds a passage followed by a question, the
question is also a text of its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.read.files import walk
from corpus_prep.read.records import csv_rows

SUPPORTED = (".json", ".jsonl", ".jsonl.gz", ".csv", ".tsv", ".parquet")
QUESTIONS = (
    "question",
    "questions",
    "query",
    "prompt",
    "problem",
    "instruction",
    "input",
    "choices",
    "options",
)
ANSWERS = ("answer", "answers", "solution", "output", "target", "criterion", "rubric")
CONTEXTS = (
    "context",
    "contexts",
    "passage",
    "passages",
    "article",
    "document",
    "documents",
    "text",
    "table",
)
IDS = ("id", "_id", "uid", "unique_id", "key")
WHOLE = "whole"
# labels in a prompt
WRAPPING = re.compile(r"^\s*(?:question|q)\s*:\s*|\s*\b(?:answer|a)\s*:\s*$", re.IGNORECASE)

ASKED = re.compile(r"(?:\n|\bquestion:)\s*(?:question:\s*)?([^\n?]{10,300}\?)\s*$", re.IGNORECASE)


class Benchmark(BaseModel):
    """A benchmark and the names of its text fields, which match at any depth and in any case."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="what reports call it")
    path: str = Field(description="a file or folder of its rows")
    questions: tuple[str, ...] = Field(default=QUESTIONS, description="fields that hold questions")
    answers: tuple[str, ...] = Field(default=ANSWERS, description="fields that hold answers")
    contexts: tuple[str, ...] = Field(default=CONTEXTS, description="fields that hold contexts")

    @property
    def kinds(self) -> dict[str, str]:
        """Lower-case field name -> kind of its texts."""
        named = {"answer": self.answers, "context": self.contexts, "question": self.questions}
        return {name.lower(): kind for kind, names in named.items() for name in names}


def read_passages(benchmark: Benchmark) -> Iterator[dict[str, str]]:
    """Yield benchmark, passage (row and place in the row, unique within the benchmark), kind and
    text. A row's contexts come one by one and also together, of kind `whole`, as a corpus would
    hold them.

    Raises:
        ValueError: the path does not exist, holds no supported file, or has no row with a known
        field.
    """
    files = _files(Path(benchmark.path))
    num_passages = 0
    for file in files:
        place = f"{file.relative_to(benchmark.path)}:" if Path(benchmark.path).is_dir() else ""
        for number, row in enumerate(read_rows(file)):
            for passage in _of_row(benchmark, f"{place}{number}", row):
                num_passages += 1
                yield passage
    if not num_passages:
        raise ValueError(
            f"benchmark {benchmark.name}: no row of {benchmark.path} has a text in a field named "
            f"{', '.join(sorted(benchmark.kinds))}. Name its fields."
        )


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"benchmark file {path} does not exist.")
    files = sorted(
        file for file in (walk(path) if path.is_dir() else [path]) if file.name.endswith(SUPPORTED)
    )
    if not files:
        raise ValueError(f"benchmark {path} has no {', '.join(SUPPORTED)} file.")
    return files


def read_rows(file: Path) -> Iterator[Any]:
    """The rows of a file of one of the SUPPORTED types, in order: a dict for each row of a table,
    any value for a line of JSON.

    Of a JSON file they are its list, or the first list of objects in its object. Raises OSError
    or ValueError, which names the file, if it cannot be read.
    """
    try:
        yield from _rows_of(file)
    except (
        ValueError,
        csv.Error,
        EOFError,
        zlib.error,
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
        with _opened(file) as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def _opened(file: Path) -> BinaryIO:
    if file.name.endswith(".gz"):
        return cast(BinaryIO, gzip.open(file))
    if file.name.endswith(".zst"):
        raw = pa.input_stream(str(file), compression="zstd")
        return cast(BinaryIO, io.BufferedReader(raw))  # type: ignore[arg-type]
    return file.open("rb")


def _top_rows(content: Any) -> list[Any]:
    """The rows of a JSON file: its list, or the first list of objects in its object (`{"version":
    1, "data": [...]}`)."""
    if isinstance(content, list):
        return content
    if not isinstance(content, dict):
        raise ValueError("it holds one value instead of an object or a list")
    lists = [v for v in content.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    if lists:
        return lists[0]
    return [content]


def _of_row(benchmark: Benchmark, number: str, row: Any) -> Iterator[dict[str, str]]:
    own = next(
        (
            str(row[key])
            for key in IDS
            if isinstance(row, dict) and isinstance(row.get(key), str | int)
        ),
        None,
    )
    name = number
    if own is not None:
        name = f"{number}:{own}"
    texts = dict.fromkeys(_texts(row, benchmark.kinds))  # each once, in order
    questions = [
        match[1] for kind, text in texts if kind != "answer" and (match := ASKED.search(text))
    ]
    texts |= dict.fromkeys(("question", text) for text in questions)
    contexts = [text for kind, text in texts if kind == "context"]
    if len(contexts) > 1:
        texts[WHOLE, "\n\n".join(contexts)] = None
    for position, (kind, text) in enumerate(texts):
        yield {
            "benchmark": benchmark.name,
            "passage": f"{name}#{position}",
            "kind": kind,
            "text": text,
        }


def _texts(value: Any, kinds: dict[str, str], kind: str | None = None) -> Iterator[tuple[str, str]]:
    """Kind and text of every field with a known name, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, kinds, kinds.get(key.lower()))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from _texts(item, kinds, kind)
    elif kind is not None and (text := WRAPPING.sub("", _joined(value)).strip()):
        yield kind, text


def _joined(value: Any) -> str:
    """A string, or the strings of a list or table joined in reading order."""
    if isinstance(value, list):
        rows = any(isinstance(item, list) for item in value)
        separator = "\n" if rows else " "
        return separator.join(filter(None, map(_joined, value)))
    if value is None:
        return ""
    return str(value)
