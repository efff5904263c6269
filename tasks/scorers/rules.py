"""Answers that are right or wrong: mathematics, the letter of an option, a number within a
tolerance."""

from __future__ import annotations

import math
import re
from string import ascii_uppercase

from tasks.readers import numbers
from tasks.readers.formulas import same_formula
from tasks.readers.markup import folded, unwrapped, without_emphasis, without_latex
from warehouse.schemas import Row

TOLERANCE = 0.0015  # relative: DocMath-Eval's (arXiv 2311.09805) 0.15 %
_LETTER = re.compile(
    r"(?i:(?:the\s+)?(?:answer|option|choice)\s*(?:is)?\s*:?\s*)?\(?([A-Z])\)?(?=[\s).:,;]|$)"
)


def same_mathematics(item: Row, answer: str) -> dict[str, float]:
    """`accuracy`: 1 if the answer equals a reference, by Math-Verify or as text, else 0. Raises
    Malformed as `same_formula` does."""
    right = any(
        folded(right) == folded(answer) or same_formula(right, answer)
        for right in item["references"]
    )
    return {"accuracy": float(right)}


def same_number(item: Row, answer: str) -> dict[str, float]:
    """`accuracy`: 1 if the answer is a number within 0.15 % of a reference, else 0. Raises
    Malformed if either is not a single number."""
    same = any(numbers.same_number(right, answer, TOLERANCE) for right in item["references"])
    return {"accuracy": float(same)}


def same_report_number(item: Row, answer: str) -> dict[str, float]:
    """`accuracy` by DocMath-Eval's own rule (`same_digits`), and `strict`, the accuracy by
    `same_number`. Raises Malformed as `same_number` does."""
    number = numbers.number_in(answer).value
    accuracy = any(
        same_digits(numbers.number_in(right).value, number) for right in item["references"]
    )
    return {"accuracy": float(accuracy), "strict": same_number(item, answer)["accuracy"]}


def same_digits(wanted: float, given: float) -> bool:
    """DocMath-Eval's comparison, as in its evaluation script: equal within 0.15 %, or when rounded
    up to three decimal places. The scale is ignored, and so is the sign, except in the comparison
    within 0.15 %.

    >>> [same_digits(12.5, x) for x in (12.51, 1250, 0.125, -125, 12.6)], same_digits(1251, 12.5)
    ([True, True, True, True, False], True)
    """
    large = max(abs(wanted), abs(given))
    small = min(abs(wanted), abs(given))
    if small and math.log10(large / small).is_integer():
        return True
    if any(abs(small * factor - large) <= TOLERANCE * large for factor in (100, 1_000, 100_000)):
        return True
    return math.ceil(1_000 * large) == math.ceil(1_000 * small) or abs(
        given - wanted
    ) <= TOLERANCE * abs(wanted)


def same_choice(item: Row, answer: str) -> dict[str, float]:
    """`accuracy`: 1 if the answer is the letter or the text of the right option, else 0."""
    return {"accuracy": float(letter_of(answer, item["options"]) in item["references"])}


def same_bbeh(item: Row, answer: str) -> dict[str, float]:
    """`accuracy` by BIG-Bench Extra Hard's own rule (arXiv 2502.19187): 1 for equal texts, numbers
    or letters, else 0."""
    same = any(same_text(right, answer) for right in item["references"])
    return {"accuracy": float(same)}


def same_text(right: str, answer: str) -> bool:
    r"""Whether two texts are equal apart from case, blanks after commas, quotes, brackets around
    the whole, and a question mark or full stop at the end; or are equal numbers.

    >>> [
    ...     same_text(*pair)
    ...     for pair in (("(B)", "b"), ("4", r"\text{4.0}."), ("a, b", "[A,B]"), ("yes", "no"))
    ... ]
    [True, True, True, False]
    """
    wanted = _plain(right)
    text = _plain(without_latex(answer))
    if wanted == text:
        return True
    try:
        return float(wanted) == float(text)
    except ValueError:
        return False


def _plain(text: str) -> str:
    lines = text.strip().lower().replace(", ", ",").replace("**", "").replace("'", "").splitlines()
    line = lines[0].strip().removesuffix(".").removesuffix("?") if lines else ""
    if len(line) == 3 and line[0] == "(" and line[-1] == ")":
        return line[1]
    if line.startswith("[") and line.endswith("]"):
        return line[1:-1]
    return line


def letter_of(answer: str, options: list[str]) -> str | None:
    r"""The offered letter with which an answer begins, or that of the option whose text it is.

    >>> [
    ...     letter_of(text, ["lion", "bunny"])
    ...     for text in ("B", r"\text{(B)} bunny", "Bunny.", "C", "A lion")
    ... ]
    ['B', 'B', 'B', None, 'A']
    """
    plain = unwrapped(without_emphasis(without_latex(answer)))
    same = [
        letter
        for letter, option in zip(ascii_uppercase, options, strict=False)
        if folded(option) == folded(plain)
    ]
    if len(same) == 1:
        return same[0]
    stated = _LETTER.match(plain)
    if stated and stated[1] in ascii_uppercase[: len(options)]:
        return stated[1]
    return None


def nothing(item: Row, answer: str) -> dict[str, float]:
    """No metrics: only a judge decides."""
    return {}
