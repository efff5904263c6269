"""Read SPICE's replies: the chosen format, and the question with its answer.

`tasks.readers` parses JSON and letters.
"""

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

MULTIPLE_CHOICE = "multiple_choice"
FREE_FORM = "free_form"
AnswerType = Literal["Integer", "Expression", "String", "Float", "Boolean", "List"]
INTEGER, EXPRESSION, STRING, FLOAT, BOOLEAN, LIST = ANSWER_TYPES = get_args(AnswerType)
MAX_STRING_WORDS = 3
# Every example in the prompts begins and ends like this: a reply that copies one asks nothing.
EXAMPLE = "A ferry "
EXAMPLES_END = (
    "in 2 weeks?",
    "to two decimal places?",
    "in n and k?",
    "the first could not?",
    "Answer true or false.",
    "from the fewest to the most?",
    "in 5 days?",
)
_SHAPES = {
    INTEGER: re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)"),
    FLOAT: re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    BOOLEAN: re.compile(r"true|false"),
}
_BOOLEANS = {"true": True, "false": False}


def read_choice(reply: str, formats: Sequence[str], answer_types: Sequence[str]) -> str:
    """The format chosen: `multiple_choice`, or the answer type of a free-form question.

    Raises Malformed for a reply without such an object, for one that finds neither or both formats
    suitable, and for a format or answer type that is not allowed.

    >>> formats = ("multiple_choice", "free_form")
    >>> free_form = '"suitable_for_mcq": false, "suitable_for_free_form": true'
    >>> reply = "{" + free_form + ', "best_answer_type": "String"}'
    >>> read_choice(reply, formats, ("Integer", "String"))
    'String'
    """
    choice = last_object(reply, ("suitable_for_mcq", "suitable_for_free_form"))
    multiple_choice = _boolean(choice.get("suitable_for_mcq"))
    free_form = _boolean(choice.get("suitable_for_free_form"))
    if multiple_choice is None or free_form is None:
        raise Malformed("suitability is not true or false")
    if multiple_choice == free_form:
        raise Malformed("not exactly one format is suitable")
    if multiple_choice:
        return _allowed(MULTIPLE_CHOICE, MULTIPLE_CHOICE in formats)
    answer_type = choice.get("best_answer_type")
    answer_type = _answer_type(answer_type) if isinstance(answer_type, str) else "no answer type"
    return _allowed(answer_type, FREE_FORM in formats and answer_type in answer_types)


def _boolean(value: Any) -> bool | None:
    """A truth value, possibly in quotes; None for anything else, including 0 and 1."""
    if isinstance(value, bool):
        return value
    return _BOOLEANS.get(str(value).strip().lower())


def _answer_type(name: str) -> str:
    """The answer type that `name` means, regardless of case; `name` itself if it means none."""
    name = name.strip()
    for answer_type in ANSWER_TYPES:
        if answer_type.lower() == name.lower():
            return answer_type
    return name


def _allowed(choice: str, allowed: bool) -> str:
    if not allowed:
        raise Malformed(f"{choice[:40]} was not offered")
    return choice


def read_task(rollout: Rollout, prompt: PromptRow) -> Row:
    """The question in a rollout, of the type that its prompt asked for, as columns of `tasks`.
    Raises Malformed as `read_question` does."""
    return read_question(rollout["reply"] or "", prompt["task_type"] or "")


def read_line(rollout: Rollout, prompt: PromptRow) -> Row:
    """A question on one line with its answer.

    Raises Malformed unless the answer's words occur both in the document and in the question's own
    text.
    """
    question, answer = lines.read_told(rollout["reply"] or "", prompt["messages"][-1]["content"])
    _check_answer(answer, STRING)
    return {"text": question, "answer_type": STRING, "reference": answer, "options": None}


def read_question(reply: str, task_type: str) -> Row:
    """The columns text, reference, answer_type and options of a question of the type `task_type`.

    Raises Malformed for a question that is not self-contained or breaks the rules of its format.
    """
    written = last_object(reply, ("question", "answer"))
    question = _text(written, "question")
    if question.startswith(EXAMPLE) and question.endswith(EXAMPLES_END):
        raise Malformed("the example of the prompt")
    if LEANS_ON_SOURCE.search(question):
        raise Malformed("the question leans on its source")
    if task_type == MULTIPLE_CHOICE:
        return {"text": question, "answer_type": MULTIPLE_CHOICE, **_read_options(written)}
    stated = written.get("answer_type", task_type)
    if not isinstance(stated, str) or _answer_type(stated) != task_type:
        raise Malformed("another answer type than asked for")
    answer = _text(written, "answer")
    _check_answer(answer, task_type)
    return {"text": question, "answer_type": task_type, "reference": answer, "options": None}


def _text(written: Row, key: str) -> str:
    """A scalar as text: strings stripped, numbers and truth values as JSON writes them.

    Raises Malformed for anything else.
    """
    value: Any = written.get(key)
    if isinstance(value, (list, dict)):
        raise Malformed(f"{key} is not a single value")
    if isinstance(value, Unescaped):  # the paper's format is JSON: such a reply is malformed there
        raise Malformed("a backslash is not escaped")
    if value is None:
        raise Malformed(f"empty {key}")
    text = value.strip() if isinstance(value, str) else json.dumps(value)
    if not text:
        raise Malformed(f"empty {key}")
    return text


def _read_options(written: Row) -> Row:
    options = written.get("options")
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
    letter = letter_of(_text(written, "answer"), texts)
    if letter is None:
        raise Malformed("the answer is not a letter from A to D")
    return {"options": texts, "reference": letter}


def _check_answer(answer: str, answer_type: str) -> None:
    shape = _SHAPES.get(answer_type)
    if shape and not (shape.fullmatch(answer) and is_finite(answer)):
        raise Malformed(f"the answer is no {answer_type}")
    if answer_type == STRING and len(answer.split()) > MAX_STRING_WORDS:
        raise Malformed(f"the answer has more than {MAX_STRING_WORDS} words")
