"""Which stretches of a document a task repeats: runs of words that both have, and its reference answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from flows.viewer.text import CUT, shown

WORD = re.compile(r"\w+")
RUN = 3  # consecutive words that count as repeated
MAX_WORDS = 20_000


def marked(text: str, sources: Sequence[str | None]) -> Markup:
    """The document's text with `<mark>` around what `sources` share with it; the first source counts even if short.

    >>> marked("Oslo is the capital of Norway.", ["Norway", "What is the capital of it?"])
    Markup('Oslo <mark>is the capital of Norway</mark>.')
    """
    words = list(WORD.finditer(text[:CUT]))[:MAX_WORDS]
    lowered = [word[0].lower() for word in words]
    hit = [False] * len(words)
    for number, source in enumerate(sources):
        theirs = [word[0].lower() for word in WORD.finditer((source or "")[:CUT])]
        length = min(RUN, len(theirs)) if number == 0 else RUN
        if length:
            _mark(hit, lowered, {tuple(theirs[i : i + length]) for i in range(len(theirs) - length + 1)}, length)
    pieces, at, inside = Markup(""), 0, -1
    for i, word in enumerate(words):
        if hit[i] and inside < 0:
            pieces, at, inside = pieces + shown(text[at : word.start()]), word.start(), i
        if inside >= 0 and (i + 1 == len(words) or not hit[i + 1]):
            pieces += Markup("<mark>{}</mark>").format(shown(text[at : word.end()]))
            at, inside = word.end(), -1
    return pieces + shown(text[at:], cut=max(0, CUT - at))


def _mark(hit: list[bool], words: list[str], runs: set[tuple[str, ...]], length: int) -> None:
    for i in range(len(words) - length + 1):
        if tuple(words[i : i + length]) in runs:
            hit[i : i + length] = [True] * length
