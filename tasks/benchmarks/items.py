"""Items of a benchmark: rows of a file or of a dataset on the hub; `Columns` says which column
holds which part."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.contamination.benchmarks import WRAPPING, read_rows
from corpus_prep.read.hub import is_dataset, records_in_dataset
from tasks.stage import Rows, stage
from warehouse.draft import hash_json
from warehouse.schemas import ITEMS, Row

USER = "User: "  # precedes a user's message
ORDERS = ("first", "second")  # place of the judged answer beside the baseline's


class Columns(BaseModel):
    """Which columns of a benchmark's row hold the parts of an item. `a.b` is field b of field a, or
    of each member if a is a list; several names give several parts, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    rows: str | None = Field(
        default=None, description="a row's list of items; its other fields are those of each"
    )
    only: dict[str, str | int | bool] = Field(
        default={}, description="rows whose fields have these values"
    )
    id: str | None = Field(default=None, description="None: the place in the file")
    question: tuple[str, ...] = Field(description="what is asked")
    context: tuple[str, ...] = Field(default=(), description="what is shown with the question")
    answers: tuple[str, ...] = Field(
        default=(), description="accepted ones; of a choice: place, letter or text"
    )
    as_json: bool = Field(
        default=False, description="the answers are a list, written as JSON in one text"
    )
    bare: bool = Field(
        default=False, description='the question stands between "Question:" and "Answer:"'
    )
    after: str | None = Field(default=None, description="the answer is what follows this text")
    options: tuple[str, ...] = Field(default=(), description="of a multiple choice")
    first: int = Field(
        default=0, description="the number of the first option, where answers are numbers"
    )
    shuffled: bool = Field(
        default=False, description="options come in an order drawn for each item"
    )
    kind: str | None = Field(
        default=None, description="what is stored as the type of an item, such as a subject"
    )
    criteria: tuple[str, ...] = Field(
        default=(), description="of a rubric: texts, or objects with text and weight"
    )
    criterion: tuple[str, str] = Field(
        default=("criterion", "weight"), description="their names in a criterion"
    )
    against: str | None = Field(
        default=None, description="a baseline's answer, which a judge compares with"
    )
    given: tuple[str, ...] = Field(default=(), description="what else the scorer needs")


@stage(ITEMS)
def read_items(
    source: str,
    *,
    identity: str,
    benchmark: str,
    columns: Columns,
    kinds: Sequence[str] = (),
    most: int | None = None,
    seed: int = 0,
) -> Rows:
    """Yield the items of a file, or of `hf:owner/name?...`, in order, of `kinds` alone if any are
    named; if there are more than `most`, a seeded draw of `most`.

    `identity` names the content of `source`. Raises ValueError for rows that do not fit `columns`.
    """
    items = [
        item
        for item in items_of(_rows(source), benchmark, columns)
        if not kinds or item["kind"] in kinds
    ]
    if not items:
        of_kinds = f" of kind {', '.join(kinds)}" if kinds else ""
        raise ValueError(f"{source} has no item of {benchmark}{of_kinds}")
    drawn = random.Random(seed).sample(range(len(items)), min(most or len(items), len(items)))
    return (items[i] for i in sorted(drawn))


def _rows(source: str) -> Iterator[Any]:
    if is_dataset(source):
        return (dict(record.fields) for record in records_in_dataset(source))
    return read_rows(Path(source))


def items_of(rows: Iterable[Any], benchmark: str, columns: Columns) -> Iterator[Row]:
    """Yield a row of `items` for each item of a benchmark's `rows`, read as `columns` says.

    An item without an id is named by its place, counted before `columns.only` leaves any out.
    Raises ValueError, naming the place, for an item without a question or, where answers are
    needed, without an answer among its options.
    """
    position = 0
    for row in rows:
        inner = fields(row, columns.rows) if columns.rows else [{}]
        for part in inner:
            whole = {**row, **part}
            if all(
                str(field) == str(value)
                for name, value in columns.only.items()
                for field in fields(whole, name)
            ):
                yield _item(whole, f"{benchmark}-{position}", benchmark, columns)
            position += 1


def _item(row: Row, place: str, benchmark: str, columns: Columns) -> Row:
    own = fields(row, columns.id) if columns.id else []
    options = _options(row, columns.options)
    answers = parts(row, columns.answers)
    question = "\n\n".join(_turns(parts(row, columns.question)))
    if not question or (columns.answers and not answers):
        raise ValueError(
            f"{place} has no {'answer' if question else 'question'}; its fields are"
            f" {', '.join(row)}"
        )
    if columns.bare:
        question = WRAPPING.sub("", question).strip()
    if columns.as_json:
        answers = [as_text(answer) for text in answers for answer in json.loads(text)]
    if columns.after is not None:
        answers = [answer.rpartition(columns.after)[2].strip() for answer in answers]
    if options and columns.answers:
        answers = [ascii_uppercase[_chosen(answers, options, columns.first, place)]]
        if columns.shuffled:
            options, answers = _shuffled(options, answers[0], place)
    return {
        "task_id": f"{benchmark}-{own[0]}" if own else place,
        "kind": next(iter(parts(row, (columns.kind,))), None) if columns.kind else None,
        "text": question,
        "context": "\n\n".join(parts(row, columns.context)) or None,
        "options": options or None,
        "references": list(dict.fromkeys(answers)),
        "given": json.dumps(
            {name: row.get(name) for name in columns.given} | _rubric(row, columns)
        ),
    }


def _rubric(row: Row, columns: Columns) -> dict[str, Any]:
    """`criteria`: text and weight of each (default 1); nothing for an item without a rubric. An
    answer that is compared with a baseline's is judged in both orders, with equal weight."""
    if columns.against:
        (other,) = parts(row, (columns.against,))
        return {"against": other, "criteria": [{"text": order, "weight": 1.0} for order in ORDERS]}
    text, weight = columns.criterion
    listed = [value for name in columns.criteria for value in fields(row, name)]
    read = ((c, 1.0) if isinstance(c, str) else (c.get(text), c.get(weight, 1.0)) for c in listed)
    criteria = [
        {"text": criterion, "weight": float(number)}
        for criterion, number in read
        if criterion and criterion.strip()
    ]
    if criteria:
        return {"criteria": criteria}
    return {}


def _turns(texts: list[str]) -> list[str]:
    """The turns; a single message needs no speaker's name."""
    if len(texts) == 1:
        return [texts[0].removeprefix(USER)]
    return texts


def fields(row: Any, name: str) -> list[Any]:
    """The values of a field, without nulls; a list gives its members.

    >>> (
    ...     fields({"a": [{"b": "x"}, {"b": ["y", None]}]}, "a.b"),
    ...     fields({"a": 0}, "a"),
    ...     fields({"a": 0}, "b"),
    ... )
    (['x', 'y'], [0], [])
    """
    values = [row]
    for part in name.split("."):
        values = [
            inner
            for value in values
            if isinstance(value, dict)
            for inner in _members(value.get(part))
        ]
    return values


def _members(value: Any) -> list[Any]:
    rows = isinstance(value, list) and value and isinstance(value[0], list)  # a table is one text
    return [
        inner
        for inner in ([value] if rows or not isinstance(value, list) else value)
        if inner is not None
    ]


def parts(row: Row, names: Iterable[str]) -> list[str]:
    """The values of several fields, as text."""
    return [
        text for name in names for value in fields(row, name) if (text := as_text(value)).strip()
    ]


def as_text(value: Any) -> str:
    """A value as text: booleans are yes and no, whole numbers have no decimal point, a table is its
    lines, and a message of a conversation begins with its speaker.

    >>> as_text(27.0), as_text(True), as_text([["", "2019"], ["Sales", "$1.2"]])
    ('27', 'yes', ' | 2019\\nSales | $1.2')
    >>> as_text({"role": "user", "content": "Why?"})
    'User: Why?'
    """
    if isinstance(value, dict) and {"role", "content"} <= value.keys():
        return f"{str(value['role']).capitalize()}: {value['content']}"
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, list):
        return "\n".join(
            " | ".join(map(as_text, line)) if isinstance(line, list) else as_text(line)
            for line in value
        )
    return str(value)


def _options(row: Row, names: Sequence[str]) -> list[str]:
    """The options of a row, which one cell of text may hold as a list."""
    options = parts(row, names)
    listed = json_list(options[0]) if len(options) == 1 else None
    if listed is None:
        return options
    return [as_text(option) for option in listed]


def json_list(value: Any) -> list[Any] | None:
    """The list that a cell of text holds; None if it holds none.

    >>> json_list('["Rome", "Roma"]'), json_list("Rome"), json_list("[sic]"), json_list(7)
    (['Rome', 'Roma'], None, None, None)
    """
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return None


def _chosen(answers: list[str], options: list[str], first: int, place: str) -> int:
    """The index of the right option, given by its number, its letter, its text, or a mark for
    every option."""
    if len(answers) == len(options) > 1 and set(answers) == {"0", "1"}:
        return answers.index("1")
    answer = answers[0]
    if answer in options:
        return options.index(answer)
    if answer.isdigit():
        number = int(answer) - first
    elif answer:
        number = ascii_uppercase.find(answer.strip("() ."))
    else:
        number = -1
    if not 0 <= number < len(options):
        raise ValueError(f"{place}: {answer!r} is none of the {len(options)} options")
    return number


def _shuffled(options: list[str], letter: str, place: str) -> tuple[list[str], list[str]]:
    order = list(range(len(options)))
    random.Random(hash_json(place)).shuffle(order)
    return [options[i] for i in order], [
        ascii_uppercase[order.index(ascii_uppercase.index(letter))]
    ]
