"""Quotes from a text: how a reply lists them, which of them are verbatim, and how much of a text
they cover."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from tasks.readers.malformed import Malformed
from tasks.readers.words import words_of

# limits, because each quote is searched for in the whole prompt
MAX_CHARS = 30_000
MOST_QUOTES = 200
FIRST_WITHOUT_BLANKS = "\u2e80"  # Unicode's Chinese and Japanese characters begin here
_BETWEEN = re.compile(
    r"\.\.\.|…|\[…\]|\[\.\.\.\]"
    r"|(?<=[.!?;])(?<!\b(?:Dr|Mr|Ms|St)\.)(?<!\b(?:Mrs)\.)(?<!\.[A-Z]\.)\s+"
)
_MARKER = re.compile(r"^\s*(?:[-–—*•>]+|[(\[]?\d{1,2}[.)\]])\s+")
_AROUND = " \t\"'“”‘’«»`*_"


def quotes_of(listed: str) -> list[str]:
    """The sentences of a list of quotes, without the markers, quotation marks and ellipses around
    them.

    Raises Malformed for more than `MOST_QUOTES` quotes, and for more than `MAX_CHARS` characters.

    >>> quotes_of('1. "Ada lived in Ulm. She taught." \\n- The bridge ... fell in 1902')
    ['Ada lived in Ulm.', 'She taught.', 'The bridge', 'fell in 1902']
    """
    if len(listed) > MAX_CHARS:
        raise Malformed(f"quotes of more than {MAX_CHARS} characters")
    quotes = list(islice(_quotes(listed), MOST_QUOTES + 1))
    if len(quotes) > MOST_QUOTES:
        raise Malformed(f"more than {MOST_QUOTES} quotes")
    return quotes


def first_quotes(listed: str) -> list[str]:
    """As `quotes_of`, but cut to the first `MAX_CHARS` characters and `MOST_QUOTES` quotes."""
    return list(islice(_quotes(listed[:MAX_CHARS]), MOST_QUOTES))


def _quotes(listed: str) -> Iterator[str]:
    lines = (_MARKER.sub("", line) for line in listed.splitlines())
    pieces = (piece.strip().strip(_AROUND) for line in lines for piece in _BETWEEN.split(line))
    return (piece for piece in pieces if words_of(piece))


def verbatim(quotes: Sequence[str], text: str) -> float:
    """The share of quotes that a text contains word for word. A quote may not begin or end within a
    word; blanks and the style of quotation marks do not matter. 0 without quotes.

    >>> verbatim(
    ...     ["Ada lived  in Ulm.", "da lived in", "Ada lived in Bonn.", "lived"],
    ...     "Then Ada lived\\nin Ulm. It rained.",
    ... )
    0.5
    """
    if not quotes:
        return 0.0
    known = _plain(text)
    return sum(_holds(known, _plain(quote)) for quote in quotes) / len(quotes)


def _holds(text: str, quote: str) -> bool:
    """Whether a text contains a quote without cutting a word."""
    start = text.find(quote)
    while start >= 0:
        if not (_cuts_a_word(text, start) or _cuts_a_word(text, start + len(quote))):
            return True
        start = text.find(quote, start + 1)
    return False


def _cuts_a_word(text: str, place: int) -> bool:
    """Whether a position in a text is within a word. In Chinese and Japanese, which have no blanks,
    this cannot be told, and no position counts as within a word."""
    around = text[max(0, place - 1) : place + 1]
    return len(around) == 2 and around.isalnum() and max(around) < FIRST_WITHOUT_BLANKS


def _plain(text: str) -> str:
    return " ".join(text.translate(str.maketrans("“”‘’«»", '""\'\'""')).split())


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The number of words in the longest common subsequence: the numerator of ROUGE-L (Lin 2004).

    >>> longest_common("the cat sat down".split(), "the old cat lay down".split())
    3
    """
    row = [0] * (len(other) + 1)
    for word in one:
        before = 0
        for i, their in enumerate(other, start=1):
            before, row[i] = row[i], before + 1 if word == their else max(row[i], row[i - 1])
    return row[-1]
