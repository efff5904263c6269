"""A mark out of ten, between tags."""

from __future__ import annotations

import re

from tasks.readers.malformed import Malformed
from tasks.readers.verdicts import deciding

LOWEST = 1
HIGHEST = 10
_NUMBER = re.compile(
    r"[\s*_`\"'$]*(-?\d{1,3}(?:\.\d{1,3})?)\s*(?:(?:/|out of)\s*10)?[\s*_`\"'.$]*", re.IGNORECASE
)


def mark_out_of_ten(reply: str, name: str = "score") -> float:
    """The mark from 1 to 10 in the last deciding element named `name`, scaled to 0..1; marks
    outside that range are clipped.

    Raises Malformed if the element is missing or empty, or holds no number.

    >>> (
    ...     mark_out_of_ten("<think><score>2</score></think> <score> 10/10 </score>"),
    ...     mark_out_of_ten("<score>1</score>"),
    ... )
    (1.0, 0.0)
    """
    text = deciding(reply, name)
    if not text:
        raise Malformed(f"empty {name} element")
    match = _NUMBER.fullmatch(text)
    if not match:
        raise Malformed(f"the {name} is no number")
    return min(1.0, max(0.0, (float(match[1]) - LOWEST) / (HIGHEST - LOWEST)))
