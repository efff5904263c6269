"""Cut long texts into pieces at pauses: paragraphs, lines, sentences or words."""

from __future__ import annotations

from collections.abc import Iterator

# paragraphs, lines, sentences and words, in order of preference
PAUSES = (("\n\n",), ("\n",), (". ", "! ", "? ", "。", "！", "？"), (" ",))
SLACK = 0.25  # share of a piece's length by which its end may move either way


def cut(text: str, max_chars: int) -> Iterator[str]:
    """Pieces of about equal length, at most `max_chars`, that together make up the text.

    A piece ends with a paragraph if one ends nearby, else with a line, a sentence or a word.

    >>> list(cut("One two.\\n\\nThree four.", 12)), list(cut("abcdefgh", 3)), list(cut("short", 9))
    (['One two.\\n\\n', 'Three four.'], ['abc', 'def', 'gh'], ['short'])
    """
    start = 0
    while (left := len(text) - start) > max_chars:
        size = -(-left // -(-left // max_chars))
        low = start + max(int(size * (1 - SLACK)), 1)
        high = start + min(int(size * (1 + SLACK)), max_chars)
        ends = (_last_end(text, pauses, low, high) for pauses in PAUSES)
        end = next(filter(None, ends), start + size)
        yield text[start:end]
        start = end
    yield text[start:]


def _last_end(text: str, pauses: tuple[str, ...], low: int, high: int) -> int | None:
    """The end of the last of some pauses between two places; None if there is none."""
    ends = [place + len(pause) for pause in pauses if (place := text.rfind(pause, low, high)) >= 0]
    return max(ends, default=None)
