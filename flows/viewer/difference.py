"""Compare two replies word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup

from flows.viewer.text import shown

WORDS = 1500  # compared words of each text: the time grows with their product
PIECE = re.compile(r"\s+|\w+|[^\w\s]")


def difference(before: str, after: str) -> Markup:
    """`after`, with `<ins>` around what `before` lacks and `<del>` around what it has instead.

    >>> difference("a red fox", "a blue fox")
    Markup('a <del>red</del><ins>blue</ins> fox')
    """
    old, new = PIECE.findall(before), PIECE.findall(after)
    rest = "".join(new[WORDS:])
    old, new = old[:WORDS], new[:WORDS]
    parts = Markup("")
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            parts += shown("".join(new[c:d]))
            continue
        if b > a:
            parts += Markup("<del>{}</del>").format(shown("".join(old[a:b])))
        if d > c:
            parts += Markup("<ins>{}</ins>").format(shown("".join(new[c:d])))
    return parts + (shown(rest) if rest else "")
