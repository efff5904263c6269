"""Evaluation sets as passages: every text in them that a document of the corpus might contain.

A benchmark is a file of rows (`corpus_prep.read.rows`), or a folder of such files. Its rows are
searched at every depth for fields that hold questions, answers or contexts; a list of strings or a
table counts as one text. If one field holds a passage followed by a question, the question also
counts as a separate text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.read.files import walk
from corpus_prep.read.rows import read_rows
from corpus_prep.read.suffixes import ROW_FILES

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

    name: str = Field(description="name of the evaluation set in reports")
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
    """Yield benchmark, passage, kind and text of every passage.

    `passage` is the row and the place in it, unique within the benchmark. A row's contexts come one
    by one and also together, of kind `whole`, as a corpus would hold them.

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
        file for file in (walk(path) if path.is_dir() else [path]) if file.name.endswith(ROW_FILES)
    )
    if not files:
        raise ValueError(f"benchmark {path} has no {', '.join(ROW_FILES)} file.")
    return files


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
