"""What SPICE's replies mean: the format chosen, the question with its answer, the boxed answer.

A reader looks only past the last think block and raises `Malformed` with the reason when what it wants is not there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tasks.prompt import Malformed, Row
from tasks.rollouts.search_syntax import without_thoughts

MULTIPLE_CHOICE, FREE_FORM = "multiple_choice", "free_form"
LETTERS = ("A", "B", "C", "D")
INTEGER, FLOAT, EXPRESSION, STRING, BOOLEAN, LIST = ANSWER_TYPES = (
    "Integer", "Float", "Expression", "String", "Boolean", "List",
)  # fmt: skip
MAX_STRING_WORDS = 3
MAX_JSON_CHARS = 20_000  # an object may begin anywhere in a reply: bounds the search for it
_SHAPES = {
    INTEGER: re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)"),
    FLOAT: re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    BOOLEAN: re.compile(r"true|false"),
}
_SOURCE = "text|document|passage|article|excerpt|paragraph|source|reading"
LEANS_ON_SOURCE = re.compile(
    rf"\b(?:(?:the|this|that|these|given|provided|above|following)\s+(?:\w+\s+)?(?:{_SOURCE})s?\b"
    r"|according to the (?:author|information|data)"
    r"|(?:as|is|was|are|were|been)\s+(?:mentioned|stated|described|discussed|noted)\s+(?:above|earlier|previously|in\b)"
    r"|as mentioned|mentioned above|based on the analysis)",
    re.IGNORECASE,
)
_UNESCAPED = re.compile(r"[\x00-\x09\x0b-\x1f]")  # in JSON "\frac" is a form feed and "rac"
_BOX = re.compile(r"\\boxed\s*\{")


def last_object(reply: str) -> Row:
    """The last JSON object that stands by itself after the last think block, without a code fence around it.

    >>> last_object('<think> {"a": 1} </think> so {"a": {"b": 2}}')
    {'a': {'b': 2}}
    """
    text = without_thoughts(reply)[-MAX_JSON_CHARS:]
    if "```" in text:
        raise Malformed("code fence")
    decoder, found, at = json.JSONDecoder(parse_constant=_no_constant), None, text.find("{")
    while at >= 0:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    if not isinstance(found, dict):
        raise Malformed("no JSON object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def read_choice(reply: str, formats: Sequence[str], answer_types: Sequence[str]) -> str:
    """The format chosen: `multiple_choice`, or the answer type of a free-form question.

    >>> kinds = (MULTIPLE_CHOICE, FREE_FORM), ("Integer", "String")
    >>> read_choice('{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "String"}', *kinds)
    'String'
    """
    said = last_object(reply)
    letters, free = said.get("suitable_for_mcq"), said.get("suitable_for_free_form")
    if not isinstance(letters, bool) or not isinstance(free, bool):
        raise Malformed("suitability is not true or false")
    if letters == free:
        raise Malformed("not exactly one format is suitable")
    if letters:
        return _allowed(MULTIPLE_CHOICE, MULTIPLE_CHOICE in formats)
    answer_type = said.get("best_answer_type")
    answer_type = answer_type.strip() if isinstance(answer_type, str) else "no answer type"
    return _allowed(answer_type, FREE_FORM in formats and answer_type in answer_types)


def _allowed(choice: str, allowed: bool) -> str:
    if not allowed:
        raise Malformed(f"{choice[:40]} was not to be chosen")
    return choice


def read_question(reply: str, task_type: str) -> Row:
    """Columns text, reference, answer_type, options of a question that stands alone and keeps its format's rules."""
    said = last_object(reply)
    question = _text(said, "question")
    if LEANS_ON_SOURCE.search(question):
        raise Malformed("the question leans on its source")
    if task_type == MULTIPLE_CHOICE:
        return {"text": question, "answer_type": MULTIPLE_CHOICE, **_read_options(said)}
    stated = said.get("answer_type")
    if not isinstance(stated, str) or stated.strip() != task_type:
        raise Malformed("another answer type than asked for")
    answer = _text(said, "answer")
    _check_answer(answer, task_type)
    return {"text": question, "answer_type": task_type, "reference": answer, "options": None}


def _text(said: Row, key: str) -> str:
    """A scalar as text: strings stripped, numbers and truth values as JSON writes them; anything else is refused."""
    value: Any = said.get(key)
    if isinstance(value, (list, dict)):
        raise Malformed(f"{key} is not a single value")
    if isinstance(value, str) and _UNESCAPED.search(value):
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
        _without_letter(_text({"option": option}, "option"), letter)
        for letter, option in zip(LETTERS, options, strict=True)
    ]
    if len({" ".join(text.split()).casefold() for text in texts}) < len(LETTERS):
        raise Malformed("options repeat")
    if (letter := _text(said, "answer").rstrip(".)").lstrip("(")) not in LETTERS:
        raise Malformed("the answer is not a letter from A to D")
    return {"options": texts, "reference": letter}


def _without_letter(option: str, letter: str) -> str:
    """
    >>> _without_letter("B) 12 km", "B"), _without_letter("A cat", "A")
    ('12 km', 'A cat')
    """
    return re.sub(rf"^\(?{letter}[).:]\s*", "", option) or option


def _check_answer(answer: str, answer_type: str) -> None:
    shape = _SHAPES.get(answer_type)
    if shape and not shape.fullmatch(answer):
        raise Malformed(f"the answer is no {answer_type}")
    if answer_type == STRING and len(answer.split()) > MAX_STRING_WORDS:
        raise Malformed(f"the answer has more than {MAX_STRING_WORDS} words")


def boxed(reply: str) -> str:
    r"""What the last `\boxed{...}` holds, braces balanced; thoughts do not count.

    >>> boxed(r"first \boxed{1}, then \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    text = without_thoughts(reply)
    starts = [found.end() for found in _BOX.finditer(text)]
    if not starts:
        raise Malformed("no boxed answer")
    depth, start = 1, starts[-1]
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            break
    else:
        raise Malformed("the box does not close")
    answer = text[start:at].strip()
    if not answer:
        raise Malformed("empty box")
    return answer
