"""Whether an answer equals its reference: by letter, by Math-Verify for mathematics, by exact text
otherwise.

Math-Verify can run forever or exhaust memory (`9^{9^{9^9}}`): call it only where it can be killed,
as `tasks.match` does.
"""

from __future__ import annotations

import re

from tasks.readers.formulas import same_formula
from tasks.readers.letters import letter_of
from tasks.readers.markup import folded, without_latex
from tasks.readers.numbers import is_finite
from warehouse.schemas import Row

LETTER = "multiple_choice"
LIST = "List"
TEXTS = ("String", "Boolean")


def agree(task: Row, answer: str) -> bool:
    """Whether `answer` equals the reference of `task`, compared by the task's `answer_type`;
    without one, as text or mathematics.

    Raises Malformed if Math-Verify cannot tell.
    """
    answer_type = task.get("answer_type")
    reference = task["reference"]
    if answer_type == LETTER:
        options = task.get("options")
        # a voted label may be the text of an option
        return letter_of(answer, options) == (letter_of(reference, options) or reference)
    if answer_type == LIST:
        return _parts(answer) == _parts(reference)
    if answer_type in TEXTS:
        return folded(answer) == folded(reference)
    as_text = answer_type is None and is_finite(reference) and folded(answer) == folded(reference)
    return as_text or same_formula(reference, answer)


def _parts(text: str) -> list[str]:
    inside = re.sub(r"\\[lr]angle(?![A-Za-z])", "", without_latex(text)).strip(" []()\\{}$")
    return [folded(part) for part in inside.split(",")]
