"""Two texts side by side: where they differ, and a little of what they share."""

from __future__ import annotations

import difflib

AROUND = 12  # words shown at each end of an equal stretch


def beside(first: str, second: str) -> list[list[tuple[str, bool]]]:
    """Two texts as stretches of words, and whether each differs from the other text; long equal stretches are cut.

    >>> beside("a b c d", "a x c d")
    [[('a', False), ('b', True), ('c d', False)], [('a', False), ('x', True), ('c d', False)]]
    """
    one, other = first.split(), second.split()
    sides: list[list[tuple[str, bool]]] = [[], []]
    for kind, a, b, c, d in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for side, words in zip(sides, (one[a:b], other[c:d]), strict=True):
            if kind == "equal" and len(words) > 2 * AROUND:
                words = [*words[:AROUND], "…", *words[-AROUND:]]
            if words:
                side.append((" ".join(words), kind != "equal"))
    return sides
