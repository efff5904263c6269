"""Read SPICE's replies: the chosen format, and the question with its answer. `tasks.readers` parses JSON and
letters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tasks.readers import lines
from tasks.readers.letters import LETTERS, letter_of, without_letter
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import is_finite
from tasks.readers.objects import Unescaped, last_object
from tasks.readers.standalone import LEANS_ON_SOURCE
from warehouse.schemas import PromptRow, Rollout, Row

MULTIPLE_CHOICE, FREE_FORM = "multiple_choice", "free_form"
AnswerType = Literal["Integer", "Expression", "String", "Float", "Boolean", "List"]
INTEGER, EXPRESSION, STRING, FLOAT, BOOLEAN, LIST = ANSWER_TYPES = get_args(AnswerType)
MAX_STRING_WORDS = 3
EXAMPLE = "A ferry "  # every example of the prompts begins so: a reply that copies one asks nothing
EXAMPLES_END = (
    "in 2 weeks?", "to two decimal places?", "in n and k?", "the first could not?", "Answer true or false.",
    "from the fewest to the most?", "in 5 days?",
)  # fmt: skip
_SHAPES = {
    INTEGER: re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)"),
    FLOAT: re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    BOOLEAN: re.compile(r"true|false"),
}
_BOOLEANS = {"true": True, "false": False}


def read_choice(reply: str, formats: Sequence[str], answer_types: Sequence[str]) -> str:
    """The format chosen: `multiple_choice`, or the answer type of a free-form question.

    >>> kinds = (MULTIPLE_CHOICE, FREE_FORM), ("Integer", "String")
    >>> read_choice('{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "String"}', *kinds)
    'String'
    """
    said = last_object(reply, ("suitable_for_mcq", "suitable_for_free_form"))
    letters, free = (_boolean(said.get(key)) for key in ("suitable_for_mcq", "suitable_for_free_form"))
    if letters is None or free is None:
        raise Malformed("suitability is not true or false")
    if letters == free:
        raise Malformed("not exactly one format is suitable")
    if letters:
        return _allowed(MULTIPLE_CHOICE, MULTIPLE_CHOICE in formats)
    answer_type = said.get("best_answer_type")
    answer_type = _answer_type(answer_type) if isinstance(answer_type, str) else "no answer type"
    return _allowed(answer_type, FREE_FORM in formats and answer_type in answer_types)


def _boolean(value: Any) -> bool | None:
    """A truth value, also in quotes; 0 and 1 are none."""
    return value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().lower())


def _answer_type(name: str) -> str:
    """As we write it, whatever its case."""
    return next((kind for kind in ANSWER_TYPES if kind.lower() == name.strip().lower()), name.strip())


def _allowed(choice: str, allowed: bool) -> str:
    if not allowed:
        raise Malformed(f"{choice[:40]} was not to be chosen")
    return choice


def read_asked(rollout: Rollout, prompt: PromptRow) -> Row:
    """The question in a rollout, of the type that its prompt asked for."""
    return read_question(rollout["reply"] or "", prompt["task_type"] or "")


def read_line(rollout: Rollout, prompt: PromptRow) -> Row:
    """A question on one line with its answer, which stands in the document and in what the question itself tells."""
    question, answer = lines.read_told(rollout["reply"] or "", prompt["messages"][-1]["content"])
    _check_answer(answer, STRING)
    return {"text": question, "answer_type": STRING, "reference": answer, "options": None}


def read_question(reply: str, task_type: str) -> Row:
    """Columns text, reference, answer_type, options of a question that stands alone and keeps its format's rules."""
    said = last_object(reply, ("question", "answer"))
    question = _text(said, "question")
    if question.startswith(EXAMPLE) and question.endswith(EXAMPLES_END):
        raise Malformed("the example of the prompt")
    if LEANS_ON_SOURCE.search(question):
        raise Malformed("the question leans on its source")
    if task_type == MULTIPLE_CHOICE:
        return {"text": question, "answer_type": MULTIPLE_CHOICE, **_read_options(said)}
    stated = said.get("answer_type", task_type)
    if not isinstance(stated, str) or _answer_type(stated) != task_type:
        raise Malformed("another answer type than asked for")
    answer = _text(said, "answer")
    _check_answer(answer, task_type)
    return {"text": question, "answer_type": task_type, "reference": answer, "options": None}


def _text(said: Row, key: str) -> str:
    """A scalar as text: strings stripped, numbers and truth values as JSON writes them; anything else is refused."""
    value: Any = said.get(key)
    if isinstance(value, (list, dict)):
        raise Malformed(f"{key} is not a single value")
    if isinstance(value, Unescaped):  # the paper's format is JSON: such a reply is malformed there
        raise Malformed("a backslash is not escaped")
    text = "" if value is None else value.strip() if isinstance(value, str) else json.dumps(value)
    if not text:
        raise Malformed(f"empty {key}")
    return text


def _read_options(said: Row) -> Row:
    options = said.get("options")
    if isinstance(options, dict) and sorted(options) == list(LETTERS):
        options = [options[letter] for letter in LETTERS]
    if not isinstance(options, list) or len(options) != len(LETTERS):
        raise Malformed("not four options")
    texts = [
        without_letter(_text({"option": option}, "option"), letter)
        for letter, option in zip(LETTERS, options, strict=True)
    ]
    if len({" ".join(text.split()).casefold() for text in texts}) < len(LETTERS):
        raise Malformed("options repeat")
    letter = letter_of(_text(said, "answer"), texts)
    if letter is None:
        raise Malformed("the answer is not a letter from A to D")
    return {"options": texts, "reference": letter}


def _check_answer(answer: str, answer_type: str) -> None:
    shape = _SHAPES.get(answer_type)
    if shape and not (shape.fullmatch(answer) and is_finite(answer)):
        raise Malformed(f"the answer is no {answer_type}")
    if answer_type == STRING and len(answer.split()) > MAX_STRING_WORDS:
        raise Malformed(f"the answer has more than {MAX_STRING_WORDS} words")
