"""R_rule: does an extracted answer hold the reference? A rule for each task type; what it cannot compare is Malformed.

Departure: the reference must stand in the answer as whole words. As a bare substring "12" would be found in "1200" and
"no" in "I do not know".
"""

from __future__ import annotations

import re
import unicodedata

from flows.micro.worlds.clusters import same_answer
from tasks.prompt import Malformed, Row

TOLERANCE = 0.0015  # relative, of the reference
ARTICLES = frozenset(("a", "an", "the"))
BETWEEN_DIGITS = re.compile(r"(?<=\d)[.](?=\d)")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
SCALES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "m": 1e6, "mn": 1e6, "billion": 1e9, "bn": 1e9, "trillion": 1e12}
LETTER = re.compile(r"^(?:option|choice|answer)?\s*[(\[]?\s*([A-D])\s*(?:[)\].:,;]|$)", re.IGNORECASE)


def covers(task: Row, answer: str) -> bool:
    """Cover exact match by the task's type: `compare` of the stage `match`.

    >>> covers({"task_type": "general_qa", "reference": "12"}, "it was 1200 men")
    False
    """
    rule = {"finance_math": same_number, "multiple_choice": same_letter}.get(task["task_type"], holds)
    return rule(task["reference"], answer)


def truly_covers(task: Row, answer: str) -> bool:
    """The truth of the micro-world: the true value, letter or number, in digits or in words."""
    return same_answer(answer.strip(), task["reference"])


def holds(reference: str, answer: str) -> bool:
    """The words of the reference follow each other in the answer; case, punctuation and articles do not count.

    >>> holds("The Eiffel Tower", "It is the Eiffel tower, in Paris."), holds("no", "I do not know")
    (True, False)
    """
    wanted = words_of(reference)
    if not wanted:
        raise Malformed("the reference has no words to look for")
    return f" {' '.join(wanted)} " in f" {' '.join(words_of(answer))} "


def words_of(text: str) -> list[str]:
    """Lower case, without punctuation and articles; a point between digits stays, thousands' commas go.

    >>> words_of("The U.S. spent $1,250.5 (twice)")
    ['us', 'spent', '$1250.5', 'twice']
    """
    text = THOUSANDS.sub("", unicodedata.normalize("NFKC", text).lower())
    marked = BETWEEN_DIGITS.sub("\0", text)
    bare = "".join(c for c in marked if c == "\0" or not unicodedata.category(c).startswith("P"))
    return [word for word in bare.replace("\0", ".").split() if word not in ARTICLES]


def same_number(reference: str, answer: str) -> bool:
    """Equal within 0.15 % of the reference, in the unit stated or in ones.

    >>> same_number("125", "1.25"), same_number("1,250", "$1250.9"), same_number("1.2", "1.2 million")
    (False, True, True)
    """
    wanted = values_of(reference)
    return any(abs(x - y) <= TOLERANCE * abs(y) + 1e-12 for x in values_of(answer) for y in wanted)


def number_of(text: str) -> float:
    """The one number of a text, as it is written; raises Malformed for none or several."""
    return values_of(text)[0]


def values_of(text: str) -> tuple[float, ...]:
    """The one number of a text as it is written and, behind "million" and its like, in ones.

    >>> values_of("(1,234)"), values_of("−5 %"), values_of("1.2 million")
    ((-1234.0,), (-5.0,), (1.2, 1200000.0))
    """
    plain = THOUSANDS.sub("", unicodedata.normalize("NFKC", text).replace("−", "-").replace("–", "-"))
    plain = re.sub(r"(?<=[\w)])-(?=\d)", " ", plain)  # "2019-2020" is two numbers, not one below zero
    found = list(NUMBER.finditer(re.sub(r"-\s*\$\s*|\$\s*-\s*", "-", plain)))
    if len(found) != 1:
        raise Malformed("no number" if not found else "several numbers")
    value = float(found[0][0])
    if re.fullmatch(r"[$€£]?\s*\(\s*[$€£]?\s*[\d.]+\s*%?\s*\)", plain.strip()):  # accountants' minus
        value = -value
    rest = plain[found[0].end() :].strip().lower()
    scale = SCALES.get(re.split(r"[^a-z]", rest, maxsplit=1)[0])
    return (value,) if scale is None else (value, value * scale)


def same_letter(reference: str, answer: str) -> bool:
    """
    >>> same_letter("B", "(b) the second"), same_letter("A", "B"), same_letter("C", "Option C.")
    (True, False, True)
    """
    found = LETTER.match(answer.strip())
    if found is None:
        raise Malformed("no letter A to D")
    return found[1].upper() == reference
