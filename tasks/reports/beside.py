"""Two texts side by side: where they differ, and a little of what they share."""

from __future__ import annotations

import difflib

AROUND = 12  # words shown at each end of an equal stretch


def beside(first: str, second: str) -> list[list[tuple[str, bool]]]:
    """Two texts as stretches of words, and whether each stretch differs from the other text.

    Long equal stretches are shortened.

    >>> beside("a b c d", "a x c d")
    [[('a', False), ('b', True), ('c d', False)], [('a', False), ('x', True), ('c d', False)]]
    """
    one = first.split()
    other = second.split()
    sides: list[list[tuple[str, bool]]] = [[], []]
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, one_start, one_end, other_start, other_end in matcher.get_opcodes():
        stretches = (one[one_start:one_end], other[other_start:other_end])
        for side, words in zip(sides, stretches, strict=True):
            if kind == "equal" and len(words) > 2 * AROUND:
                words = [*words[:AROUND], "…", *words[-AROUND:]]
            if words:
                side.append((" ".join(words), kind != "equal"))
    return sides
