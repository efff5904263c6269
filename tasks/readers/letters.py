"""The letter of an option, as models state it: alone, in brackets, before the option's text, or
with a reason."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from tasks.readers.markup import folded, unwrapped, without_emphasis, without_latex

LETTERS = ("A", "B", "C", "D")
ALPHABET = ascii_uppercase  # letters of more than four options
MAX_CHARS = 2_000
_HEDGE = re.compile(
    r"(?:(?:most|very)\s+)?(?:likely|probably|clearly|indeed|therefore|thus|hence|so"
    r"|obviously|definitely|simply|still"
    r"|of\s+course)"
    r"\b[\s,:]*",
    re.IGNORECASE,
)
_DOUBLED = re.compile(r"\[\[|\]\]|\\[{}]")
_REASON = (
    r"because|since|as|is|due|given|which|where|seems|would|looks|fits|matches"
    r"|(?:and\s+|but\s+)?not|rather\s+than|instead\s+of"
)
_GOES_ON = re.compile(
    rf"[:,;]|\.(?![A-Za-z]\b)|\s*(?:[-–—/|]+\s|[—|])"
    rf"|\s+(?:{_REASON})\b|\s+[\d(\[$€£=→\"“'−-]",
    re.IGNORECASE,
)
_ARROW = re.compile(r"\\(?:(?:[Rr]|[Ll]ongr)ightarrow|to)(?![A-Za-z])")


def lettered(options: Sequence[str] | None) -> list[dict[str, str]]:
    """The options of a choice with their letters, as prompts show them; empty without options.

    >>> lettered(["1912", "1914"])
    [{'letter': 'A', 'text': '1912'}, {'letter': 'B', 'text': '1914'}]
    """
    return [
        {"letter": letter, "text": text}
        for letter, text in zip(ALPHABET, options or (), strict=False)
    ]


def with_option(reference: str, options: Sequence[str] | None) -> str:
    """A reference that is an option's letter, followed by the option; other references unchanged.

    >>> with_option("B", ["1912", "1914"]), with_option("1914", None)
    ('B) 1914', '1914')
    """
    for option in lettered(options):
        if option["letter"] == reference:
            return f"{reference}) {option['text']}"
    return reference


@dataclass(frozen=True)
class _Patterns:
    """Patterns for texts that state one of several letters."""

    label: re.Pattern[str]
    first: re.Pattern[str]
    another: re.Pattern[str]
    in_mathematics: re.Pattern[str]
    last: re.Pattern[str]


@functools.cache
def _patterns(num_letters: int) -> _Patterns:
    """The patterns for the letters from A on."""
    end = ALPHABET[num_letters - 1]
    upper = f"[A-{end}]"
    # the pronoun in "B, I think" is not a second letter
    another = rf"(?:(?!I\s+[a-z])[A-{end}]|(?!i\b)[b-{end.lower()}])"
    return _Patterns(
        label=re.compile(
            r"(?:the\s+)?(?:(?:correct|right|best|final)\s+){0,2}(?:answer|option|choice|letter)"
            rf"\s*(?:\bis\b)?\s*:?\s*(?=\W?{upper}\b)",
            re.IGNORECASE,
        ),
        first=re.compile(
            rf"[(\[]?\s*([A-{end}a-{end.lower()}])(?![\w'’])(?:\s*([)\]]))?", re.DOTALL
        ),
        another=re.compile(
            # "B; option C is too short" states no second letter
            r"[\s,;]*(?:[,;/&+]"
            rf"(?!\s*(?i:option\s+)?[(\[]?{another}[)\]]?\s+(?i:is|was|would|has)\b)"
            r"|\b(?i:or|and|nor)\b)\s*"
            r"(?:(?i:maybe|perhaps|possibly|option|also)\s+){0,2}"
            rf"[(\[]?\s*{another}(?![\w'’])|\s*[(\[]\s*(?:(?i:or)\b|{upper}\s*[)\]])"
            # 3 days and B) 4 days
            rf"|(?:(?!\b(?i:{_REASON})\b)[^,;:.!?\n]){{0,80}}?\s(?i:and|or)\s+[(\[]?{upper}[)\]]"
            rf"|.{{0,80}}?\b(?i:wait|actually|correction)\b.{{0,80}}?\b{upper}\b",
            re.DOTALL,
        ),
        in_mathematics=re.compile(rf"\$\s*(\(?{upper}\)?)\s*\$"),
        last=re.compile(rf"[(\[]({upper})[)\]]$"),
    )


def letter_of(text: str, options: Sequence[str] | None = None) -> str | None:
    r"""The one letter that a text states, from A to D, or to the last letter of more than four
    `options`; None if the text states no letter, or several. With `options`, an option's text
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
    >>> letter_of("F"), letter_of("F", ["1", "2", "3", "4", "5", "6"])
    (None, 'F')
    """
    num_letters = min(max(len(LETTERS), len(options or ())), len(ALPHABET))
    letters = _patterns(num_letters)
    text = _DOUBLED.sub(lambda match: match[0][-1], unicodedata.normalize("NFKC", text[:MAX_CHARS]))
    text = letters.in_mathematics.sub(r"\1", without_latex(_ARROW.sub(" → ", text)))
    plain = unwrapped(without_emphasis(text).lstrip("-•*, \n"))
    plain = _HEDGE.sub("", plain, count=1) if _HEDGE.match(plain) else plain
    if letters.label.match(plain):
        stated = _stated(letters.label.sub("", plain, count=1), letters)
    else:
        stated = _stated(plain, letters)
    return stated or _among(plain, options or ()) or _after(plain, options or (), letters)


def _stated(text: str, letters: _Patterns) -> str | None:
    text = unwrapped(text)
    first = letters.first.match(text)
    if not first:
        return None
    rest = text[first.end() :]
    if letters.another.match(rest):
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
        letter
        for letter, option in zip(ALPHABET, options, strict=False)
        if folded(option) == wanted
    ]
    if len(same) == 1:
        return same[0]
    return None


def _after(text: str, options: Sequence[str], letters: _Patterns) -> str | None:
    """The letter that follows its option's text."""
    last = letters.last.search(text)
    if last and _among(text[: last.start()], options) == last[1]:
        return last[1]
    return None


def without_letter(option: str, letter: str) -> str:
    """An option without its letter and the sign after it; unchanged if nothing would be left.

    >>> without_letter("B) 12 km", "B"), without_letter("A cat", "A")
    ('12 km', 'A cat')
    """
    return re.sub(rf"^\(?{letter}[).:]\s*", "", option) or option
