"""The passages of a document that a task repeats: runs of shared words, and its reference
answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markupsafe import Markup

from flows.app.viewer.text import CUT, shown

WORD = re.compile(r"\w+")
RUN = 3  # consecutive words that count as repeated
MAX_WORDS = 20_000


def marked(text: str, sources: Sequence[str | None]) -> Markup:
    """The document's text with `<mark>` around the words that it shares with `sources`.

    The first source is marked even if it is shorter than a run.

    >>> marked("Oslo is the capital of Norway.", ["Norway", "What is the capital of it?"])
    Markup('Oslo <mark>is the capital of Norway</mark>.')
    """
    words = list(WORD.finditer(text[:CUT]))[:MAX_WORDS]
    lowered = [word[0].lower() for word in words]
    hit = [False] * len(words)
    for number, source in enumerate(sources):
        theirs = [word[0].lower() for word in WORD.finditer((source or "")[:CUT])]
        length = RUN
        if number == 0:
            length = min(RUN, len(theirs))
        if length:
            starts = range(len(theirs) - length + 1)
            runs = {tuple(theirs[i : i + length]) for i in starts}
            _mark(hit, lowered, runs, length)
    pieces = Markup("")
    at = 0
    is_inside = False
    for i, word in enumerate(words):
        if hit[i] and not is_inside:
            pieces += shown(text[at : word.start()])
            at = word.start()
            is_inside = True
        is_last = i + 1 == len(words) or not hit[i + 1]
        if is_inside and is_last:
            pieces += Markup("<mark>{}</mark>").format(shown(text[at : word.end()]))
            at = word.end()
            is_inside = False
    return pieces + shown(text[at:], cut=max(0, CUT - at))


def _mark(hit: list[bool], words: list[str], runs: set[tuple[str, ...]], length: int) -> None:
    """Set `hit` for the words in any of the runs, which have `length` words each."""
    for i in range(len(words) - length + 1):
        if tuple(words[i : i + length]) in runs:
            hit[i : i + length] = [True] * length
