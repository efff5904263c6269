"""The letter of an option, as models state it: alone, in brackets, before the option's text,
with a reason."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from tasks.readers.markup import folded, unwrapped, without_emphasis, without_latex

LETTERS = ("A", "B", "C", "D")
MAX_CHARS = 2_000
_HEDGE = re.compile(
    r"(?:(?:most|very)\s+)?(?:likely|probably|clearly|indeed|therefore|thus|hence|so|obviously|definitely|simply|still)"
    r"\b[\s,:]*",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:the\s+)?(?:(?:correct|right|best|final)\s+){0,2}(?:answer|option|choice|letter)\s*(?:\bis\b)?\s*:?\s*(?=\W?[A-D]\b)",
    re.IGNORECASE,
)
_FIRST = re.compile(r"[(\[]?\s*([A-Da-d])(?![\w'’])(?:\s*([)\]]))?", re.DOTALL)
_ANOTHER = re.compile(
    r"[\s,;]*(?:[,;/&+]|\b(?i:or|and|nor)\b)\s*(?:(?i:maybe|perhaps|possibly|option|also)\s+){0,2}"
    r"[(\[]?\s*(?:[A-D]|[b-d])(?![\w'’])|\s*[(\[]\s*(?:(?i:or)\b|[A-D]\s*[)\]])"
)
_DOUBLED = re.compile(r"\[\[|\]\]|\\[{}]")
_IN_MATHEMATICS = re.compile(r"\$\s*(\(?[A-D]\)?)\s*\$")
_LAST = re.compile(r"[(\[]([A-D])[)\]]$")
_REASON = r"because|since|as|is|due|given|which|where|seems|would|looks|fits|matches"
_GOES_ON = re.compile(
    rf"[:,;]|\.(?![A-Za-z]\b)|\s*[-–—/|]+\s|\s+(?:{_REASON})\b|\s+[\d($€£=→\"“'−-]", re.IGNORECASE
)


def letter_of(text: str, options: Sequence[str] | None = None) -> str | None:
    r"""A to D; None if the text states no letter, or several. With `options`, an option's text
    stands for its letter.

    >>> [
    ...     letter_of(t)
    ...     for t in (
    ...         "B",
    ...         r"\textbf{(B)}\ 12",
    ...         "**b**",
    ...         "Option B",
    ...         "B, melted",
    ...         "B because C is hot",
    ...     )
    ... ]
    ['B', 'B', 'B', 'B', 'B', 'B']
    >>> [letter_of(t) for t in ("A cat", "a matter of debate", "B or C", "B, C", "not B", "12")]
    [None, None, None, None, None, None]
    >>> letter_of("12 km", ["10 km", "12 km", "14 km", "16 km"])
    'B'
    """
    text = _DOUBLED.sub(lambda match: match[0][-1], unicodedata.normalize("NFKC", text[:MAX_CHARS]))
    text = _IN_MATHEMATICS.sub(r"\1", without_latex(text))
    plain = unwrapped(without_emphasis(text).lstrip("-•* \n"))
    plain = _HEDGE.sub("", plain, count=1) if _HEDGE.match(plain) else plain
    stated = _stated(_LABEL.sub("", plain, count=1) if _LABEL.match(plain) else plain)
    return stated or _among(plain, options or ()) or _after(plain, options or ())


def _stated(text: str) -> str | None:
    text = unwrapped(text)
    first = _FIRST.match(text)
    if not first:
        return None
    rest = text[first.end() :]
    if _ANOTHER.match(rest):
        return None
    if (
        first[2]
        or not rest.strip(" .!")
        or (_GOES_ON.match(rest) and (first[1] != "a" or rest[0] in ":,;."))
    ):
        return first[1].upper()
    return None


def _among(text: str, options: Sequence[str]) -> str | None:
    wanted = folded(text) if options else ""
    same = [
        letter for letter, option in zip(LETTERS, options, strict=False) if folded(option) == wanted
    ]
    if len(same) == 1:
        return same[0]
    return None


def _after(text: str, options: Sequence[str]) -> str | None:
    """The letter after its option's text."""
    last = _LAST.search(text)
    if last and _among(text[: last.start()], options) == last[1]:
        return last[1]
    return None


def without_letter(option: str, letter: str) -> str:
    """An option without its letter and the sign that follows; whole if nothing would be left.

    >>> without_letter("B) 12 km", "B"), without_letter("A cat", "A")
    ('12 km', 'A cat')
    """
    return re.sub(rf"^\(?{letter}[).:]\s*", "", option) or option
