"""Does an answer equal its reference? By letter, by Math-Verify for mathematics, by exact text otherwise.

Math-Verify can run for ever or fill the memory (`9^{9^{9^9}}`): call it only where it can be killed, as `tasks.match`
does.
"""

from __future__ import annotations

from flows.spice.readers import EXPRESSION, FLOAT, INTEGER, LIST, MULTIPLE_CHOICE
from tasks.prompt import Row
from tasks.readers.formulas import same_formula
from tasks.readers.letters import letter_of
from tasks.readers.markup import folded, without_latex

MATHEMATICS = (INTEGER, FLOAT, EXPRESSION)


def agree(task: Row, answer: str) -> bool:
    """Whether `answer` equals the reference of `task`. Raises Malformed where Math-Verify cannot tell."""
    answer_type, reference = task["answer_type"], task["reference"]
    if answer_type == MULTIPLE_CHOICE:
        return letter_of(answer, task.get("options")) == reference
    if answer_type == LIST:
        return _parts(answer) == _parts(reference)
    if answer_type in MATHEMATICS:
        return same_formula(reference, answer)
    return folded(answer) == folded(reference)


def _parts(text: str) -> list[str]:
    return [folded(part) for part in without_latex(text).strip(" []()\\{}$").split(",")]
