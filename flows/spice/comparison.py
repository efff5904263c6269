"""Does an answer equal its reference? By letter, by Math-Verify for mathematics, by exact text otherwise.

Math-Verify can run for ever or fill the memory (`9^{9^{9^9}}`): call it only where it can be killed, as `tasks.match`
does.
"""

from __future__ import annotations

import functools
import logging
import re

from math_verify import parse, verify

from flows.spice.readers import EXPRESSION, FLOAT, INTEGER, LIST, MULTIPLE_CHOICE
from tasks.prompt import Malformed, Row

MATHEMATICS = (INTEGER, FLOAT, EXPRESSION)
FLOAT_DIGITS = 6  # Math-Verify's own default: numbers are compared when rounded to so many
FUNCTIONS = {"sqrt", "sinh", "cosh", "tanh", "asin", "acos", "atan", "arcsin", "arccos", "arctan", "floor", "ceil"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_LETTER = re.compile(r"\(?([A-Da-d])(?:[).:](?:\s.*)?)?", re.DOTALL)
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mathbf|textit|operatorname)\s*\{([^{}]*)\}")
_SCIENTIFIC = re.compile(r"(?<![\w.])([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d+)(?!\w)")

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it says at every call that its own time limit is off


def agree(task: Row, answer: str) -> bool:
    """Whether `answer` equals the reference of `task`. Raises Malformed where Math-Verify cannot tell."""
    answer_type, reference = task["answer_type"], task["reference"]
    if answer_type == MULTIPLE_CHOICE:
        return letter(answer) == reference
    if answer_type == LIST:
        return [plain(part) for part in _parts(answer)] == [plain(part) for part in _parts(reference)]
    if answer_type not in MATHEMATICS:
        return plain(answer) == plain(reference)
    given, wanted = bare(answer), bare(reference)
    if given == wanted:
        return True
    if _INTEGER.fullmatch(given) and _INTEGER.fullmatch(wanted):
        return int(given) == int(wanted)  # most answers are such, and Math-Verify takes milliseconds
    return not _in_words(reference) and equal_mathematics(reference, answer)


def letter(answer: str) -> str | None:
    r"""The letter that an answer gives, alone or before its option; None where it gives none.

    >>> letter("B"), letter(r"\text{(b)}"), letter("C) 12 km"), letter("A cat"), letter("12")
    ('B', 'B', 'C', None, None)
    """
    found = _LETTER.fullmatch(_unwrapped(answer).strip().rstrip("."))
    return found[1].upper() if found else None


def bare(text: str) -> str:
    r"""Text without LaTeX text commands, quotes around it or punctuation after it; one blank between words.

    >>> bare(r" '\text{The  Nile}'. "), bare(".5")
    ('The Nile', '.5')
    """
    return " ".join(_unwrapped(text).split()).rstrip(".,;: ").strip("\"'`$ ").rstrip(".,;: ")


def plain(text: str) -> str:
    """The same in lower case, for exact comparison."""
    return bare(text).casefold()


def _unwrapped(text: str) -> str:
    return _COMMAND.sub(r"\1", text)


def _in_words(reference: str) -> bool:
    """Math-Verify takes a word for a product of its letters: `hello` would equal `olleh`."""
    return bool(set(_WORD.findall(reference)) - FUNCTIONS)


def _parts(text: str) -> list[str]:
    return text.strip(" []()").split(",")


def equal_mathematics(reference: str, answer: str) -> bool:
    """Math-Verify's verdict. An answer in which it finds no mathematics is not equal; a reference without any cannot
    be compared with."""
    gold, given = parsed(reference), parsed(answer)
    if not gold:
        raise Malformed("Math-Verify finds no mathematics in the reference")
    try:
        return bool(given) and verify(
            gold, given, float_rounding=FLOAT_DIGITS, timeout_seconds=None, raise_on_error=True
        )
    except Exception as problem:
        raise Malformed(f"Math-Verify: {type(problem).__name__}") from problem


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> list:
    """What Math-Verify reads in a text, without what it could only copy. Raises Malformed where it fails."""
    try:
        found = parse(f"${as_latex(text)}$", parsing_timeout=None, raise_on_error=True)  # type: ignore[arg-type]
        return [read for read in found if not isinstance(read, str)]
    except Exception as problem:
        raise Malformed(f"Math-Verify: {type(problem).__name__}") from problem


def as_latex(text: str) -> str:
    r"""Ways of writing that Math-Verify misreads: powers as `**`, scientific notation, dollar signs.

    >>> as_latex("$2*x**2$"), as_latex("1.5e3")
    ('2*x^2', '1.5 \\times 10^{3}')
    """
    return _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text.replace("**", "^")).replace("$", "").strip()
