"""The answer that a reply states: "The answer is ...", "Final answer: ...", "... is the right
answer", or a box."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from tasks.readers.boxed import BOX, last_box, without_boxes
from tasks.readers.malformed import Malformed
from tasks.readers.markup import unwrapped, without_emphasis, without_latex
from tasks.readers.thoughts import spoken

_ADJECTIVE = r"(?:final|correct(?:ed)?|revised|updated|right|best|true|overall|short)\s+"
_IS = (
    r"\s+(?:is|(?:should|would|must|can\s+only|has\s+to|appears\s+to|seems\s+to)\s+be)\b"
    r"(?!\s+not\b)(?:\s+as\s+follows\b)?\s*[:：]?"
)
_TO_WHAT = (  # ..., according to the text, ...
    r"(?:,?\s+(?:(?:to|for|in|from|given)\s+(?:the|this|that|your)|based\s+on|according\s+to)"
    r"\s+(?:\w+\s+){0,3}\w+,?)?"
)
_SIGN = r"\s*(?:[:：=→]|[-–—]\s)"
_STATED = re.compile(
    rf"\b(?:(?:the|my|our)\s+(?:{_ADJECTIVE}){{0,2}}|(?:{_ADJECTIVE}){{1,2}})(?:answer|option|choice)"
    rf"{_TO_WHAT}(?:{_IS}|\s*[:：])"
    r"|^[^\w\n]{0,8}(?:\d{1,2}[.)]\s+)?(?:correction\W{1,3})?"
    rf"(?:{_ADJECTIVE})?(?:answer|ans)(?:{_SIGN}|{_IS})"
    rf"|(?<=[.!?]\s)answer{_IS}"
    rf"|^[^\w\n]{{0,8}}(?:the\s+)?(?:{_ADJECTIVE})?answer[^\w\n]{{0,8}}$(?P<heading>)",
    re.IGNORECASE | re.MULTILINE,
)
_STATED_BEFORE = re.compile(  # "..., so B is the right answer"
    rf"(?<=\S)\s+is\s+the\s+(?:(?:{_ADJECTIVE}){{1,2}}(?:answer|option|choice)|answer)\b(?!\s*\?)",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?:[^\n,:;.!?]|(?<=\d)[.,](?=\d))*$")
_MARKUP_LINE = re.compile(r"[\s$*`\\\[\]:#=_-]*(?:json|text|latex)?")
_END_TOKEN = re.compile(r"<\|[^<>|]{0,64}\|>|</s>")
_TAG = re.compile(r"</?(?:answer|b|strong|i|em|u)>", re.IGNORECASE)


def stated_answer(reply: str, placeholders: Sequence[str] = ()) -> str:
    r"""The last stated answer, to the end of its line, without markup and full stop; if none is
    stated, the content of the last box. "The answer is not ..." does not count as stated, nor do
    the prompt's `placeholders`.

    Raises Malformed if there is neither.

    >>> stated_answer(
    ...     "<think>the answer is 3</think> Therefore, **the answer is:** \\(\\boxed{12.5\\%}\\)."
    ... )
    '12.5%'
    >>> stated_answer("Final answer: **Paris**\n\nNote that the answer is not Rome.")
    'Paris'
    """
    text = html.unescape(_TAG.sub("", without_emphasis(spoken(reply))))
    empty = False
    last_box_at = max((box.start() for box in BOX.finditer(text)), default=-1)
    for statement in reversed(list(_STATED.finditer(text))):
        if statement["heading"] is not None and statement.end() < last_box_at:
            break
        answer = _line_after(text, statement.end())
        if answer and answer.strip(" .()[]'\"") not in placeholders:
            return answer
        empty = empty or not answer
    if empty:
        raise Malformed("the stated answer is empty")
    try:
        return _plain(last_box(reply))
    except Malformed as problem:
        before = list(_STATED_BEFORE.finditer(text))
        clause = (
            _CLAUSE.search(text[max(0, before[-1].start() - 200) : before[-1].start()])
            if before
            else None
        )
        if clause is None or not clause[0].strip():
            raise Malformed("no answer is stated") from problem
        return _plain(clause[0])


def _line_after(text: str, at: int) -> str:
    """The rest of the line or, if that is empty, the next non-empty line."""
    for line in text[at : at + 20_000].split("\n")[:6]:
        if not _MARKUP_LINE.fullmatch(line):
            return _plain(without_boxes(_END_TOKEN.split(line)[0]).lstrip("> "))
    return ""


def _plain(text: str) -> str:
    return unwrapped(without_latex(unwrapped(text)))
