r"""The box around a final answer: `\boxed{...}`."""

from __future__ import annotations

import re

from tasks.readers.malformed import Malformed
from tasks.readers.thoughts import spoken

BOX = re.compile(r"\\f?box(?:ed)?\s*+\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_OR = re.compile(
    r"[\s$,;*\\)\](\[]*+(?:or|or\s+else|or\s+perhaps|or\s+maybe)[\s$*\\(\[]*+", re.IGNORECASE
)
_DENIED = re.compile(r"\b(?:not|instead\s+of|rather\s+than)[\s$*\\(]*$", re.IGNORECASE)
_PLACEHOLDERS = ("...", "…", "\\ldots", "\\dots", "", "answer", "your answer", "final answer")


def last_box(reply: str) -> str:
    r"""The content of the last `\boxed{...}` outside of thoughts. A box that only shows where to
    answer is ignored, and so is one that is negated ("not \boxed{1}").

    Raises Malformed if there is no other box, if the box does not close, or if two boxes are joined
    by "or".

    >>> last_box(r"first \boxed{1}, then \boxed{\frac{1}{2}}, in \boxed{} as asked.")
    '\\frac{1}{2}'
    """
    text = spoken(reply)
    boxes = list(BOX.finditer(text))
    if not boxes:
        raise Malformed("no boxed answer")
    end = len(text)
    is_denied = False
    for i in reversed(range(len(boxes))):
        start = boxes[i].end()
        end_of_box = _end(text, boxes[i].end(), end)
        if end_of_box is None:
            raise Malformed("the box does not close")
        answer = text[start:end_of_box].strip()
        before = text[max(0, boxes[i].start() - 60) : boxes[i].start()].rpartition("}")
        if answer not in _PLACEHOLDERS:
            if not _DENIED.search(before[2]):
                if before[1] and _OR.fullmatch(before[2]) and i > 0:
                    raise Malformed("two boxes with or between them")
                return answer
            is_denied = True
        end = boxes[i].start()
    raise Malformed("the box is denied" if is_denied else "empty box")


def worked_answer(solution: str) -> str:
    r"""The content of the last `\boxed{...}` of a solution that people wrote; '' without a box.

    >>> worked_answer(r"So $x$ is $\boxed{0}$ or $\boxed{\frac{1}{2}}$."), worked_answer("It is 2.")
    ('\\frac{1}{2}', '')
    """
    for box in reversed(list(BOX.finditer(solution))):
        end = _end(solution, box.end(), len(solution))
        if end is not None:
            return solution[box.end() : end].strip()
    return ""


def without_boxes(text: str) -> str:
    """The text with every box replaced by its content.

    >>> without_boxes(r"is $\\boxed{1.2}$ million")
    'is $1.2$ million'
    """
    kept = []
    at = 0
    for box in BOX.finditer(text):
        end = _end(text, box.end(), len(text)) if box.start() >= at else None
        if end is not None:
            kept += [text[at : box.start()], text[box.end() : end]]
            at = end + 1
    return "".join([*kept, text[at:]])


def _end(text: str, start: int, stop: int) -> int | None:
    """The position of the brace that closes the one opened before `start`."""
    depth = 1
    for brace in _BRACE.finditer(text, start, stop):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None
