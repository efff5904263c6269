"""Items of a benchmark: rows of a file or of a dataset on the hub; `Columns` says which column
holds which part."""

from __future__ import annotations

import ast
import json
import logging
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from corpus_prep.contamination.benchmarks import WRAPPING
from corpus_prep.read.hub import is_dataset, records_in_dataset
from corpus_prep.read.repair import storable
from corpus_prep.read.rows import read_rows
from tasks.readers.boxed import worked_answer
from tasks.stage import Rows, stage
from warehouse.draft import hash_json
from warehouse.schemas import ITEMS, Row

USER = "User: "  # precedes a user's message
ORDERS = ("first", "second")  # position of the judged answer in a comparison with the baseline's
log = logging.getLogger("selfplay")


class Columns(BaseModel):
    """Which columns of a benchmark's row hold the parts of an item. `a.b` is field b of field a, or
    of each member if a is a list; several names give several parts, in order."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    rows: str | None = Field(
        default=None,
        description="list of items within a row; the row's other fields apply to each of them",
    )
    only: dict[str, str | int | bool] = Field(
        default={}, description="use only rows whose fields have these values"
    )
    id: str | None = Field(
        default=None, description="id of an item; left out: its position in the file"
    )
    question: tuple[str, ...] = Field(description="what is asked")
    context: tuple[str, ...] = Field(default=(), description="what is shown with the question")
    answers: tuple[str, ...] = Field(
        default=(), description="accepted answers; of a multiple choice: position, letter or text"
    )
    as_json: bool = Field(
        default=False,
        description="a text that is a list, in JSON or Python syntax, holds several answers",
    )
    bare: bool = Field(
        default=False, description='the question is between "Question:" and "Answer:"'
    )
    after: str | None = Field(default=None, description="the answer is what follows this text")
    boxed: bool = Field(
        default=False, description="the answer is in the last box of a worked solution"
    )
    options: tuple[str, ...] = Field(default=(), description="options of a multiple choice")
    first: int = Field(
        default=0, description="the number of the first option, where answers are numbers"
    )
    by_place: bool = Field(
        default=False,
        description="answers of a multiple choice are positions or letters, never texts",
    )
    shuffled: bool = Field(default=False, description="options are in an order drawn for each item")
    kind: str | None = Field(
        default=None, description="what is stored as the item's type, such as a subject"
    )
    criteria: tuple[str, ...] = Field(
        default=(), description="criteria of a rubric: texts, or objects with text and weight"
    )
    criterion: tuple[str, str] = Field(
        default=("criterion", "weight"), description="names of these fields in a criterion"
    )
    against: str | None = Field(
        default=None, description="a baseline's answer, which a judge compares with"
    )
    given: tuple[str, ...] = Field(default=(), description="other fields that the scorer needs")


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
    """Yield the items of a file, or of `hf:owner/name?...`, in order; only those of `kinds` if any
    are given; if there are more than `most`, a seeded draw of `most`.

    `identity` identifies the content of `source`. Items that share an id get different ones (see
    `distinct`). Raises ValueError for rows that do not fit `columns`.
    """
    items = [
        item
        for item in distinct(items_of(_rows(source), benchmark, columns))
        if not kinds or item["kind"] in kinds
    ]
    if not items:
        of_kinds = f" of kind {', '.join(kinds)}" if kinds else ""
        raise ValueError(f"{source} has no item of {benchmark}{of_kinds}")
    drawn = random.Random(seed).sample(range(len(items)), min(most or len(items), len(items)))
    return (items[i] for i in sorted(drawn))


def distinct(items: Iterable[Row]) -> Iterator[Row]:
    """Yield items under unique ids: the second item with an id `x` becomes `x#2`, and so on. An
    item that equals an earlier one with its id is left out, with a warning that counts them.
    Another warning counts items that equal one with another id: they stay, since benchmarks have
    them.

    >>> items = [{"task_id": "x", "text": text} for text in ("Who?", "Who?", "When?")]
    >>> [(item["task_id"], item["text"]) for item in distinct(items)]
    [('x', 'Who?'), ('x#2', 'When?')]
    """
    items_with: dict[str, list[Row]] = {}
    taken = set[str]()
    contents = set[str]()
    num_items = 0
    num_equal = 0
    for item in items:
        given = item["task_id"]
        same_id = items_with.setdefault(given, [])
        if item in same_id:
            num_equal += 1
            continue
        same_id.append(item)
        number = len(same_id)
        own = given if number == 1 else f"{given}#{number}"
        while own in taken:
            own += "#"
        taken.add(own)
        num_items += 1
        contents.add(hash_json({**item, "task_id": None}))
        yield {**item, "task_id": own}
    if num_equal:
        log.warning("items left out, as an equal one has their id: %d", num_equal)
    if len(contents) < num_items:
        log.warning("items that equal an earlier one of another id: %d", num_items - len(contents))


def _rows(source: str) -> Iterator[Any]:
    if is_dataset(source):
        return (dict(record.fields) for record in records_in_dataset(source))
    return read_rows(Path(source))


def items_of(rows: Iterable[Any], benchmark: str, columns: Columns) -> Iterator[Row]:
    """Yield a row of `items` for each item of a benchmark's `rows`, read as `columns` says.

    An item without an id is named after its position, counted before `columns.only` leaves any out.
    Raises ValueError, which names the position, for an item without a question or, if answers are
    needed, without an answer among its options.
    """
    position = 0
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {number} of {benchmark} is no object: {row!r:.80}")
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
    question = "\n\n".join(_turns(parts(row, columns.question)))
    options = _options(row, columns.options)
    answers = _answers(row, columns)
    if not question:
        raise ValueError(f"{place} has no question: {_missing(row, columns.question)}")
    if columns.answers and not answers:
        raise ValueError(f"{place} has no answer: {_missing(row, columns.answers)}")
    if columns.bare:
        question = WRAPPING.sub("", question).strip()
    references = list(dict.fromkeys(map(as_text, answers)))
    if options and columns.answers:
        right = _chosen(answers, options, columns, place)
        if columns.shuffled:
            order = list(range(len(options)))
            random.Random(hash_json(place)).shuffle(order)
            options = [options[i] for i in order]
            right = order.index(right)
        references = [ascii_uppercase[right]]
    return {
        "task_id": f"{benchmark}-{own[0]}" if own else place,
        "kind": next(iter(parts(row, (columns.kind,))), None) if columns.kind else None,
        "text": question,
        "context": "\n\n".join(parts(row, columns.context)) or None,
        "options": list(map(as_text, options)) or None,
        "references": references,
        "given": json.dumps(
            {name: row.get(name) for name in columns.given} | _rubric(row, columns)
        ),
    }


def _missing(row: Row, names: Iterable[str]) -> str:
    """Why a row lacks some fields: they are empty, or it has other fields."""
    empty = [name for name in names if name.partition(".")[0] in row]
    if not empty:
        return f"its fields are {', '.join(row)}"
    if len(empty) == 1:
        return f"its {empty[0]} is empty"
    return f"its {' and '.join(empty)} are empty"


def _answers(row: Row, columns: Columns) -> list[Any]:
    """The non-blank values of a row's answers, as in the file."""
    answers = [
        answer
        for name in columns.answers
        for value in fields(row, name)
        for answer in _listed(value, columns.as_json)
    ]
    if columns.after is not None:
        answers = [as_text(answer).rpartition(columns.after)[2].strip() for answer in answers]
    if columns.boxed:
        answers = [worked_answer(as_text(answer)) for answer in answers]
    return [answer for answer in answers if as_text(answer).strip()]


def _listed(value: Any, as_json: bool) -> list[Any]:
    """The answers in one value."""
    listed = json_list(value) if as_json else None
    if listed is None:
        return [value]
    return [answer for answer in listed if not _is_missing(answer)]


def _rubric(row: Row, columns: Columns) -> dict[str, Any]:
    """`criteria`: the text and weight (default 1) of each; nothing for an item without a rubric. An
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
    """The turns of a conversation; a single message needs no speaker's name."""
    if len(texts) == 1:
        return [texts[0].removeprefix(USER)]
    return texts


def fields(row: Any, name: str) -> list[Any]:
    """The values of a field, without nulls, infinities, and NaN, which pandas writes for a missing
    value; a list gives its members.

    >>> (
    ...     fields({"a": [{"b": "x"}, {"b": ["y", None]}]}, "a.b"),
    ...     fields({"a": 0}, "a"),
    ...     fields({"a": 0}, "b"),
    ... )
    (['x', 'y'], [0], [])
    """
    return [value for value in places(row, name) if not _is_missing(value)]


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def places(row: Any, name: str) -> list[Any]:
    """The values of a field as in `fields`, but with nulls in their places."""
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
    is_table = isinstance(value, list) and value and isinstance(value[0], list)  # one text
    if is_table or not isinstance(value, list):
        return [value]
    return value


def parts(row: Row, names: Iterable[str]) -> list[str]:
    """The values of several fields, as text."""
    return [
        text for name in names for value in fields(row, name) if (text := as_text(value)).strip()
    ]


def as_text(value: Any) -> str:
    """A value as text: booleans are yes and no, whole numbers have no decimal point, a table is its
    lines, a message of a conversation begins with its speaker, and surrogates are replaced as in
    `storable`.

    Raises ValueError, which names the fields, for an object that is not a message.

    >>> as_text(27.0), as_text(True), as_text([["", "2019"], ["Sales", "$1.2"]])
    ('27', 'yes', ' | 2019\\nSales | $1.2')
    >>> as_text({"role": "user", "content": "Why?"})
    'User: Why?'
    """
    if isinstance(value, dict) and {"role", "content"} <= value.keys():
        return storable(f"{str(value['role']).capitalize()}: {value['content']}")
    if isinstance(value, dict):
        raise ValueError(
            f"an object with the fields {', '.join(value)} is no text: name the field that is,"
            ' as "COLUMN.FIELD"'
        )
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
    return storable(str(value))


def _options(row: Row, names: Sequence[str]) -> list[Any]:
    """The options of a row; a single text cell may hold them as a list.

    An empty option is "", so that those after it keep their places. If each option has its own
    column, the last ones may be empty, because other rows have more options.
    """
    options = ["" if _is_missing(value) else value for name in names for value in places(row, name)]
    listed = json_list(options[0]) if len(options) == 1 else None
    if listed is not None:
        options = ["" if option is None else option for option in listed]
    last = max((i for i, option in enumerate(options) if as_text(option).strip()), default=-1)
    if last < 0 or len(names) > 1:
        options = options[: last + 1]
    return options


def json_list(value: Any) -> list[Any] | None:
    """The list in a text cell, as JSON or as Python prints a list of texts, which is what pandas
    writes; None if the cell holds no list.

    >>> json_list('["Rome", "Roma"]'), json_list("Rome"), json_list("[sic]"), json_list(7)
    (['Rome', 'Roma'], None, None, None)
    >>> json_list("['Rome', 'Roma']"), json_list("['Rome' 'Roma']")
    (['Rome', 'Roma'], None)
    """
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        return json.loads(value)
    except ValueError:
        return _printed_list(value)


def _printed_list(value: str) -> list[Any] | None:
    """The list of texts that Python printed as `value`; None if it is no such list."""
    try:
        listed = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    # adjacent texts without a comma would be read as one
    if not isinstance(listed, list) or repr(listed) != value.strip():
        return None
    return listed if all(isinstance(text, str) for text in listed) else None


def _chosen(answers: list[Any], options: list[Any], columns: Columns, place: str) -> int:
    """The index of the right option, given by its number, its letter, its text, or a mark for every
    option.

    If options are texts, a number is a position, even if a text looks like it: in MMLU, answer 2 to
    the options "2", "3" and "4" is "4".
    """
    marks = list(map(as_text, answers))
    if len(marks) == len(options) > 1 and set(marks) == {"0", "1"}:
        return marks.index("1")
    answer = answers[0]
    is_place = _is_number(answer) and not any(map(_is_number, options))
    text = as_text(answer)
    texts = list(map(as_text, options))
    if not columns.by_place and not is_place and text in texts:
        return texts.index(text)
    letter = text.strip("() .")
    number = -1
    if text.isdecimal():
        number = int(text) - columns.first
    elif len(letter) == 1:
        number = ascii_uppercase.find(letter)
    if not 0 <= number < len(options):
        raise ValueError(f"{place}: {text!r} is none of the {len(options)} options")
    return number


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
