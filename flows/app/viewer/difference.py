"""Compare two replies word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup

from flows.app.viewer.text import shown

WORDS = 1500  # compared words of each text: the time grows with their product
PIECE = re.compile(r"\s+|\w+|[^\w\s]")


def difference(before: str, after: str) -> Markup:
    """`after`, with `<ins>` around what `before` lacks and `<del>` around what it has instead.

    >>> difference("a red fox", "a blue fox")
    Markup('a <del>red</del><ins>blue</ins> fox')
    """
    old = PIECE.findall(before)
    new = PIECE.findall(after)
    rest = "".join(new[WORDS:])
    old = old[:WORDS]
    new = new[:WORDS]
    parts = Markup("")
    matcher = SequenceMatcher(None, old, new, autojunk=False)
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
    return parts + shown(rest)
