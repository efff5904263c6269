"""TAT-QA's own exact match and F1 (arXiv 2105.07624; tatqa_metric.py of its repository, MIT), rule
for rule.

Numbers are converted to ones, whatever scale they are stated in, and compared to four places. Spans
are sorted and joined. F1 is over the sets of their words; for arithmetic and counts it equals exact
match. The scale of an answer is read from its text ("1.2 million", "12.5 %"), because a policy
states it in words.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from typing import Any

from warehouse.schemas import Row

_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "percent": 0.01}
_NOT_OF_NUMBERS = str.maketrans("", "", "'\"\\$€£¥%(),[]")
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)|([+-]?\.\d+)")
_LOSS = re.compile(r"\([\d.\s]+\)")
_PERCENT = re.compile(r"[\d.\s]+%")
_WITH_WORD = re.compile(r"[\d.]+\s?[a-zA-Z]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score(item: Row, answer: str) -> dict[str, float]:
    """`em` and `f1`, each 0..1, of an answer whose spans are separated by semicolons. The item's
    `given` is JSON with the annotated answer, its scale and its type."""
    gold = json.loads(item["given"])
    parts = [part.strip() for part in answer.split(";") if part.strip()]
    em, f1 = exact_match_and_f1(gold["answer"], gold["scale"], gold["answer_type"], parts)
    return {"em": em, "f1": f1}


def exact_match_and_f1(
    answer: Any, scale: str, answer_type: str, answered: Sequence[str], answer_scale: str = ""
) -> tuple[float, float]:
    """Exact match and F1 of a prediction (its spans, and the scale stated with them) against an
    annotation."""
    if answer_type == "count":
        spans = [str(int(answer))]
    elif isinstance(answer, list):
        spans = answer
    else:
        spans = [str(answer)]
    if not answered or not spans:
        return 0.0, 0.0
    right = _normalised(_in_ones(spans, scale))
    numbers = [_in_ones(answered, answer_scale)]
    first = answered[0]
    if len(answered) == 1 and not answer_scale and "%" not in first and is_number(first):
        value = number_in(first)  # 0.2342 for 23.42 percent
        numbers += [] if value is None else [f"{value:.4f}"]
    em, f1 = max(
        (float(text == right), _f1(set(text.split()), set(right.split())))
        for text in map(_normalised, numbers)
    )
    return em, em if answer_type in ("arithmetic", "count") else f1


def _in_ones(spans: Sequence[str], scale: str) -> str:
    """The spans, sorted, with each number in ones and to four places."""
    return " ".join(_span_in_ones(str(span), scale) for span in sorted(spans))


def _span_in_ones(span: str, scale: str) -> str:
    value = number_in(span) if is_number(span) else None
    if value is None:
        if scale:
            return f"{span} {scale}"
        return span
    if "%" in span:
        return f"{value:.4f}"
    return f"{round(value, 2) * _scale(scale):.4f}"


def is_number(text: str) -> bool:
    """Whether a text is just a number, or begins with a number and its scale.

    >>> is_number("$1,452.4"), is_number("1 million"), is_number("2019 sales")
    (True, True, False)
    """
    words = [bare for word in text.split() if (bare := word.translate(_NOT_OF_NUMBERS))]
    try:
        return (
            bool(words)
            and float(words[0]) == float(words[0])
            and (len(words) < 2 or _scale(words[1]) != 1)
        )
    except ValueError:
        return False


def number_in(text: str) -> float | None:
    """The first number in a text, in ones; parentheses mean a loss.

    >>> number_in("1.2 million"), number_in("(134.12)"), number_in("18.3%"), number_in("none")
    (1200000.0, -134.12, 0.183, None)
    """
    match = _NUMBER.search(text.translate(_NOT_OF_NUMBERS))
    if match is None or not match[1]:
        return None
    scaled = _WITH_WORD.search(text)
    sign = -1 if _LOSS.search(text.strip()) else 1
    percent = 0.01 if _PERCENT.search(text) else 1
    # 2018 and 2018.0 are different words
    number = float(match[1]) if "." in match[1] else int(match[1])
    return round(number * (_scale(scaled[0]) if scaled else 1) * sign * percent, 4)


def _scale(text: str) -> float:
    return next((value for word, value in _SCALES.items() if word in text.lower()), 1)


def _normalised(text: str) -> str:
    """A text in lower case without articles and punctuation, except in numbers, which are replaced
    by their value."""
    return " ".join(" ".join(_normalised_word(word.lower()) for word in text.split(" ")).split())


def _normalised_word(word: str) -> str:
    if not is_number(word):
        word = word.translate(_PUNCTUATION)
    return _ARTICLES.sub(" ", str(number_in(word)) if is_number(word) else word)


def _f1(answered: set[str], right: set[str]) -> float:
    """F1 to two places, as in the released script."""
    same = len(answered & right)
    precision = same / len(answered) if answered else 1.0
    recall = same / len(right) if right else 1.0
    if precision + recall:
        return round(2 * precision * recall / (precision + recall), 2)
    return 0.0
