"""Find out what the columns of a user's file of questions hold, by the names that are usual.

A file is .csv, .tsv, .json, .jsonl(.gz) or .parquet, with one question per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus_prep.read.rows import read_rows
from corpus_prep.read.suffixes import ROW_FILES
from tasks.benchmarks.items import Columns, fields, json_list

TEXT = "text"  # the field of an object that is its text, as in SQuAD's answers
LOOKED_AT = 100  # number of rows examined at the beginning of the file
# the first name that a file has is used; case does not matter
NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "query", "problem", "instruction", "prompt", "input", "text"),
    "answers": (
        "answers",
        "answer",
        "accepted_answers",
        "reference",
        "references",
        "solution",
        "target",
        "output",
        "label",
    ),
    "context": ("context", "contexts", "passage", "passages", "document", "documents", "article"),
    "options": ("options", "choices"),
    "id": ("id", "_id", "uid", "question_id"),
}


def is_file_of_rows(name: str) -> bool:
    """Whether a name is that of a file that `columns_of` can read.

    >>> is_file_of_rows("my.csv"), is_file_of_rows("nq"), is_file_of_rows("nq.toml")
    (True, False, False)
    """
    return name.endswith(ROW_FILES)


def columns_of(path: Path) -> Columns:
    """The columns of a file of questions.

    Raises ValueError as `guessed` does, and for a file that is missing, empty or not of rows.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        rows = list(itertools.islice(read_rows(path), LOOKED_AT))
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem}") from problem
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError(f"{path} has no rows with named columns")
    return guessed(rows, str(path))


def guessed(rows: Sequence[Mapping[str, Any]], path: str) -> Columns:
    """The columns of rows, recognised by their names; for a column of objects, their field `text`.
    A file need not have answers.

    Raises ValueError, which lists the columns, if none is named like a question; and one that lists
    the fields, for a column of objects without a text.

    >>> columns = guessed([{"Question": "Why?", "answer": "So.", "n": 1}], "my.csv")
    >>> columns.question, columns.answers, columns.context
    (('Question',), ('answer',), ())
    """
    there = list(dict.fromkeys(name for row in rows for name in row if isinstance(name, str)))
    column_of = {name.strip().lower(): name for name in reversed(there)}
    chosen = {
        part: next((column_of[name] for name in names if name in column_of), None)
        for part, names in NAMES.items()
    }
    if chosen["question"] is None:
        raise ValueError(
            f"{path} has the columns {', '.join(there)}: name one of them"
            f" {' or '.join(NAMES['question'][:3])}, and the right answers answer"
        )
    answers = _as_tuple(chosen["answers"])
    if answers and chosen["answers"] == column_of.get("answers") and "answer" in column_of:
        answers = (*answers, column_of["answer"])  # some rows have one answer, some several
    part_of = {
        "question": _as_tuple(chosen["question"]),
        "answers": answers,
        "context": _as_tuple(chosen["context"]),
        "options": _as_tuple(chosen["options"]),
    }
    texts = {
        part: tuple(_texts_in(rows, name, part, path) for name in names)
        for part, names in part_of.items()
    }
    first_answers = [row.get(answers[0]) for row in rows] if answers else []
    filled = [answer for answer in first_answers if answer not in (None, "")]
    return Columns(
        id=chosen["id"],
        question=texts["question"],
        answers=texts["answers"],
        context=texts["context"],
        options=texts["options"],
        as_json=bool(filled) and all(json_list(answer) is not None for answer in filled),
    )


def _texts_in(rows: Sequence[Mapping[str, Any]], name: str, part: str, path: str) -> str:
    """Where the texts of a column are: in the column itself, or in the field `text` of its objects.
    The messages of a conversation are texts. Raises ValueError for objects without that field."""
    values = [value for row in rows for value in fields(row, name)]
    objects = [v for v in values if isinstance(v, Mapping) and not {"role", "content"} <= v.keys()]
    if not objects:
        return name
    if len(objects) == len(values) and all(TEXT in value for value in objects):
        return f"{name}.{TEXT}"
    inner = dict.fromkeys(field for value in objects for field in value)
    raise ValueError(
        f"{path}: the column {name} holds objects with the fields {', '.join(inner)}, not texts."
        f" Make it a column of texts, or write an entry (.toml) with columns.{part} ="
        f' ["{name}.FIELD"]'
    )


def _as_tuple(name: str | None) -> tuple[str, ...]:
    if name is None:
        return ()
    return (name,)
