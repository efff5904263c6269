"""Compare two replies word by word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import takewhile

from markupsafe import Markup

from flows.app.viewer.text import shown

WORDS = 1500  # pieces of each text that are compared: the time grows with their product
PIECE = re.compile(r"\s+|\w+|[^\w\s]")


def difference(before: str, after: str) -> Markup:
    """`after`, with `<ins>` around what it adds to `before` and `<del>` around what it lacks.

    >>> difference("a red fox", "a blue fox")
    Markup('a <del>red</del><ins>blue</ins> fox')
    """
    old = PIECE.findall(before)
    new = PIECE.findall(after)
    first = _num_equal(old, new)
    last = _num_equal(old[first:][::-1], new[first:][::-1])
    end = len(new) - last
    parts = shown("".join(new[:first]))
    rest = shown("".join(new[first + WORDS : end])) + shown("".join(new[end:]))
    old = old[first : len(old) - last][:WORDS]
    new = new[first:end][:WORDS]
    # autojunk: in a long text, no match begins with a frequent piece; otherwise two repetitive
    # replies take minutes
    matcher = SequenceMatcher(None, old, new, autojunk=True)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        lacking = "".join(old[old_start:old_end])
        words = "".join(new[new_start:new_end])
        if kind == "equal":
            parts += shown(words)
            continue
        if lacking:
            parts += Markup("<del>{}</del>").format(shown(lacking))
        if words:
            parts += Markup("<ins>{}</ins>").format(shown(words))
    return parts + rest


def _num_equal(some: Sequence[str], others: Sequence[str]) -> int:
    """The length of the common prefix, in pieces.

    >>> _num_equal(["a", "b", "c"], ["a", "b", "d"]), _num_equal([], ["a"])
    (2, 0)
    """
    pairs = zip(some, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
