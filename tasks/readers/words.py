"""Words of a text, for matches that ignore case, punctuation and articles."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter

from tasks.readers.malformed import Malformed

# Each begins with a set of characters: the regex engine searches for one of them, and only then
# looks behind and ahead of it.
_THOUSANDS = re.compile(r",(?<=\d,)(?=\d{3}(?!\d))")
_KEPT = re.compile(  # 1.5, 3/4, -5, C#
    r"[./:#+-](?:(?<=\d[./:])(?=\d)|(?<=-)(?<![\w)]-)(?=[\d.$€£]|\s\d)|(?<=\b[A-Za-z][#+])[#+]*)"
)
_HYPHEN = re.compile(r"[-‐‑–—/](?:(?<=/)|(?<=\w.)(?=\w))")
_ARTICLE = re.compile(r"[tTaA](?:(?<=\b[tT])[hH][eE]\b|(?<=\b[aA])[nN]\b|(?<=\ba)\s+(?=\S))")
_FIRST_ARTICLE = re.compile(r"\W*A\s+(?=\S)")  # elsewhere a capital A is a name, as in vitamin A
_PUNCTUATION = {"Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sc"}
_UNIFIED = {0x2212: "-", **dict.fromkeys(range(1, 7), " ")}
_CURRENCY_CODE = re.compile(r"[$€£](?<=[A-Z].)(?=\d)")  # US$5
_PERCENT = re.compile(r"(?<=\d)\s?per\s?cent\b", re.IGNORECASE)
_KEEP = str.maketrans({".": "\1", "/": "\2", ":": "\3", "-": "\4", "#": "\5", "+": "\6"})
_BACK = {1: ".", 2: "/", 3: ":", 4: "-", 5: "#", 6: "+"}
_DROPPED: dict[int, str | None] = dict.fromkeys(
    code for code in range(7, sys.maxunicode + 1) if unicodedata.category(chr(code)) in _PUNCTUATION
)
_AS_WORDS = {**_DROPPED, **_BACK}


def words_of(text: str, hyphen: str = " ") -> list[str]:
    """Words in lower case, without articles, punctuation, currency signs and thousands separators.
    A point between digits, a sign before them and the sharp of C# stay. A hyphen or dash within a
    word becomes `hyphen`.

    >>> words_of("The U.S. spent $1,250.5 (twice), not -3/4 of it; a well-known case")
    ['us', 'spent', '1250.5', 'twice', 'not', '-3/4', 'of', 'it', 'well', 'known', 'case']
    >>> words_of("vitamin A"), words_of("1914–1918")
    (['vitamin', 'a'], ['1914', '1918'])
    """
    return _split(_normalised(text), hyphen)


def _normalised(text: str) -> str:
    """Text in which the punctuation to keep is protected, as control characters."""
    text = unicodedata.normalize("NFKC", text.translate(_UNIFIED))
    text = _PERCENT.sub("%", _CURRENCY_CODE.sub(" ", _THOUSANDS.sub("", text)))
    return _KEPT.sub(lambda match: match[0].translate(_KEEP), text)


def _split(text: str, hyphen: str) -> list[str]:
    text = _HYPHEN.sub(
        lambda match: " " if match[0] == "/" or _joins_digits(match) else hyphen, text
    )
    first = _FIRST_ARTICLE.match(text)
    return (
        _ARTICLE.sub("", text[first.end() if first else 0 :])
        .casefold()
        .translate(_AS_WORDS)
        .split()
    )


def _joins_digits(hyphen: re.Match[str]) -> bool:
    """Whether the hyphen is between digits: a result of 2-1 is not 21."""
    before = hyphen.string[hyphen.start() - 1]
    return before.isdigit() and hyphen.string[hyphen.end()].isdigit()


def overlap(reference: str, answer: str) -> float:
    """Word F1, with repeated words counted as often as both texts have them (SQuAD, Rajpurkar et
    al. 2016).

    >>> round(overlap("the Eiffel Tower", "Eiffel's tower in Paris"), 3), overlap("Paris", "Rome")
    (0.333, 0.0)
    """
    expected = Counter(words_of(reference))
    answer_words = Counter(words_of(answer))
    shared = (expected & answer_words).total()
    if shared:
        return 2 * shared / (expected.total() + answer_words.total())
    return 0.0


def holds(reference: str, answer: str) -> bool:
    """Whether the answer contains the reference's words in a row. Hyphens may count as blanks or as
    nothing.

    Raises Malformed for a reference without words.

    >>> holds("The Eiffel Tower", "It is the Eiffel tower, in Paris."), holds("no", "I do not know")
    (True, False)
    """
    wanted = _normalised(reference)
    own = _normalised(answer)
    if not _split(wanted, " "):
        raise Malformed("the reference has no words to look for")
    return any(
        f" {' '.join(_split(wanted, h))} " in f" {' '.join(_split(own, h))} " for h in (" ", "")
    )
