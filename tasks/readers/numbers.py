"""The one number that a text states, possibly with separators, a currency, an accountant's minus, a
percent sign, a scale, a unit or a year."""

from __future__ import annotations

import dataclasses
import math
import re
import unicodedata
from dataclasses import dataclass

from tasks.readers.malformed import Malformed
from tasks.readers.markup import bare, without_emphasis, without_latex

MAX_CHARS = 2_000
_REPEATED = 5e-3  # relative tolerance: a repeated number may be rounded
SCALES = {
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "m": 1e6,
    "mn": 1e6,
    "mm": 1e6,
    "mio": 1e6,
    "billion": 1e9,
    "b": 1e9,
    "bn": 1e9,
    "trillion": 1e12,
    "tn": 1e12,
    "lakh": 1e5,
    "crore": 1e7,
}
_CURRENCY = (
    r"(?:US|CA|AU|HK|NZ|[CAS])?\$|[€£¥₹]|\b(?:USD|EUR|GBP|CNY|RMB|INR|JPY|CHF|Rs\.?)(?=\s*[\d(.-])"
)
_SIGNED_CURRENCY = re.compile(rf"-\s*(?:{_CURRENCY})\s*|(?:{_CURRENCY})\s*-\s*")
_MINUS_IN_WORDS = re.compile(r"\b(?:minus|negative)\s+(?=[\d.])", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?<=\d)[,\u00a0\u2009\u202f'’](?=\d{3}(?!\d))")
# with only one group of three digits, these could be two numbers
_BLANK_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3}){2,}(?![\d.,]\d|\d)")
_RANGE = re.compile(r"(?<=[\w)])-(?=\d)")
_SUPERSCRIPT = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_TIMES = re.compile(r"\\times|\\cdot|[·∙⋅]")
_EQUALS = re.compile(r"=|≈|\\approx|≃|≅")
_SENTENCE_END = re.compile(r"(?<=[\d%)a-z])[.;]\s+(?=[A-Z(])|\n")
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DATE = re.compile(
    rf"\b(?:{_MONTHS})[a-z]*\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b(?:,?\s+\d{{4}}\b)?"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:{_MONTHS})[a-z]*\.?(?:,?\s+\d{{4}}\b)?"
    r"|\b\d{1,2}/\d{1,2}/\d{4}\b",
    re.IGNORECASE,
)
_YEAR = re.compile(
    r"\b((?:in|of|for|during|since|by|between|until|through|year|years|fiscal|fy|and|to|from|q[1-4]|h[12]|(?:"
    + _MONTHS
    + r")[a-z]*)(?:\s+the)?\s*'?)"
    r"(?:19|20)\d\d\b(?![.,]\d|\s*%)",
    re.IGNORECASE,
)
_YEAR_BESIDE = re.compile(
    r"\(\s*(?:fy\s*)?(?:19|20)\d\d(?:\s*(?:/|to|and|vs\.?)?\s*(?:19|20)\d\d)?\s*\)", re.IGNORECASE
)
# [3]; (see Table 4); rounded to 2 decimal places
_CITATION = re.compile(
    r"\[\d{1,3}\]"
    r"|[(\[](?:see\s+|from\s+)?"
    r"(?:doc(?:ument)?|table|source|passage|note|page|section|exhibit)s?\s+\d[^()\[\]]*[)\]]"
    r"|\b\d{1,2}\s+(?:decimal|significant)\b",
    re.IGNORECASE,
)
_WORKING = re.compile(  # ..., calculated as (9 - 8) / 8 = 0.125
    r"(?<=[\d%a-z])[,;]?\s+\(?"
    r"(?:calculated|computed|derived|obtained|because|since)\b[^\n]*=[^\n]*",
    re.IGNORECASE,
)
_SPELLED = re.compile(  # in "seven (7)" the parentheses are no minus
    r"\b((?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)\s+)\((\d+)\)",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"\b\d+(?:st|nd|rd|th)\b", re.IGNORECASE)
# scales in ASCII: for `re` a dotted capital I is an i, for str.lower() it is not
_QUANTITY = re.compile(
    r"(?P<paren>\(\s*)?(?<![\w.^])(?P<number>[-+]?(?:\d++(?:\.\d++)?|\.\d++)(?:[eE][-+]?\d++)?)(?!\.?\d|\s*(?:\^|\*\*))"
    r"(?:\s*(?:×|\*|x(?=\s*10))\s*10\s*(?:\^|\*\*)\s*[{(]?\s*(?P<power>[-+]?\d{1,4})\s*[})]?"
    r"|\s*/\s*(?P<below>\d++(?:\.\d++)?)(?![\d/])"
    r"|\s+(?P<part>\d{1,4})/(?P<whole>[1-9]\d{0,3})(?![\d/.]))?"  # 12 1/2
    r"\s*(?P<percent>%|per\s?cent\b|percentage\s+points?\b)?(?P<closed>\s*\)\s*%?)?"
    r"\s*-?(?:(?P<scale>(?a:"
    + "|".join(sorted(SCALES, key=len, reverse=True))
    + r"))(?![A-Za-z]))?(?P<shut>\s*\))?",
    re.IGNORECASE,
)
WRITTEN = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?")
_NOT_FINITE = re.compile(r"[-+]?(?:nan|inf(?:inity)?|oo|\\infty)", re.IGNORECASE)
_LONGEST_NAME = 60  # maximum characters of a number in words, including the markup around it
_POWER = re.compile(r"(?<![\w.^×*])(?<![×*x]\s)10\s*(?:\^|\*\*)\s*[{(]?\s*([-+]?\d{1,3})\s*[})]?")


@dataclass(frozen=True)
class Number:
    """A number as written, with its scale and form.

    value: the number without its scale. scale: 1e6 for "million"; None if none is stated. plain:
    whether it is written as a single number, with nothing beside it that had to be dropped, and is
    not a fraction, a power of ten or the end of an equation.
    """

    value: float
    scale: float | None = None
    percent: bool = False
    plain: bool = True

    @property
    def scaled(self) -> float:
        """The value times its scale. A percentage stays as written."""
        return self.value * (self.scale or 1.0)


def number_in(text: str) -> Number:
    r"""The one number in a text. A year beside it, a digit within a word and a repetition in
    another form do not count.

    Raises Malformed if there is none, if there are several, or if it is not finite.

    >>> [
    ...     number_in(t).scaled
    ...     for t in ("$(1,234)", "−5 %", "12.5% in 2019", "1.5 × 10^6", "4 + 8 = 12", "$1.2M")
    ... ]
    [-1234.0, -5.0, 12.5, 1500000.0, 12.0, 1200000.0]
    """
    return _forms(text)[0]


def _forms(text: str) -> list[Number]:
    """The one number in a text, in all forms in which the text writes it."""
    if len(text) > MAX_CHARS:
        raise Malformed("too long for a number")
    plain = _normalised(text).lstrip("≈ ")
    end_of_equation = _EQUALS.split(plain)[-1]
    alone = end_of_equation == plain
    numbers = _numbers(end_of_equation)
    if len(numbers) > 1:
        alone = False
        numbers = _numbers(_without_dates(end_of_equation)) or numbers
    if not numbers:
        raise Malformed("no number")
    if not all(same_value(numbers[0], other) for other in numbers[1:]):
        raise Malformed("several numbers")
    return [dataclasses.replace(number, plain=number.plain and alone) for number in numbers]


def same_number(reference: str, answer: str, tolerance: float) -> bool:
    """Whether two numbers are equal within `tolerance`, relative to the reference. A scale that
    only one of them has may be ignored; two different scales, or a percentage and a scale, make
    different numbers. Raises Malformed if either text is not a single number.

    >>> [same_number("1.2", a, 0.0015) for a in ("1.2 million", "$1.2", "120%", "1.3")]
    [True, True, False, False]
    >>> (
    ...     same_number("1.2 million", "1.2 thousand", 0.0015),
    ...     same_number("1.2 million", "1,200,000", 0.0015),
    ... )
    (False, True)
    """
    wanted = number_in(reference)
    return any(_equal(wanted, given, tolerance) for given in _forms(answer))


def is_finite(text: str) -> bool:
    """False for a number too large for Python and for a name of infinity or NaN; otherwise True.

    >>> [is_finite(text) for text in ("1e3", "1e999", "9" * 400, "nan", "x + 1")]
    [True, False, False, False, True]
    """
    plain = text.replace(",", "").strip()
    if WRITTEN.fullmatch(plain):
        return math.isfinite(float(plain))
    return len(plain) > _LONGEST_NAME or not _NOT_FINITE.fullmatch(bare(plain))


def _equal(wanted: Number, given: Number, tolerance: float) -> bool:
    if (wanted.percent and given.scale) or (given.percent and wanted.scale):
        return False
    pairs = [(wanted.scaled, given.scaled)]
    if (wanted.scale is None) != (given.scale is None):
        pairs.append((wanted.value, given.value))
    return any(abs(y - x) <= tolerance * abs(x) + 1e-12 for x, y in pairs)


def same_value(first: Number, second: Number) -> bool:
    """Whether two numbers are the same one in different forms: "12.5% (0.125)", "$1.23 billion
    ($1,234 million)".

    In the same form they must be equal: 2019 and 2020 are two numbers.
    """
    if (first.scale, first.percent, first.plain) == (second.scale, second.percent, second.plain):
        return first.value == second.value
    if first.percent != second.percent and not (first.scale or second.scale):
        share, other = (first, second) if first.percent else (second, first)
        return (
            math.isclose(share.value, 100 * other.value, rel_tol=_REPEATED)
            or share.value == other.value
        )
    return _equal(first, second, _REPEATED)


def _normalised(text: str) -> str:
    """Unify minus signs and spaces; drop markup, currencies and thousands separators; keep only the
    sentence with digits."""
    text = _SUPERSCRIPT.sub(lambda match: "^" + match[0], text)
    text = _THOUSANDS.sub("", without_emphasis(without_latex(text)))
    text = _BLANK_THOUSANDS.sub(lambda match: match[0].replace(" ", ""), text)
    text = unicodedata.normalize("NFKC", text).replace("−", "-").replace("–", "-").replace("⁄", "/")
    text = _TIMES.sub("×", _FRACTION.sub(r" \1/\2 ", _THOUSANDS.sub("", text)))
    text = re.sub(_CURRENCY, " ", _SIGNED_CURRENCY.sub("-", text))
    sentences = [part for part in _SENTENCE_END.split(text) if re.search(r"\d", part)]
    text = _MINUS_IN_WORDS.sub("-", sentences[0] if sentences else "")
    without_working = _WORKING.sub("", text)
    if re.search(r"\d", without_working):
        text = without_working
    text = _SPELLED.sub(r"\1\2", text)
    return _POWER.sub(r"1×10^\1", _RANGE.sub(" ", text))


def _without_dates(text: str) -> str:
    for pattern in (_CITATION, _YEAR_BESIDE, _DATE, _ORDINAL):
        text = pattern.sub(" ", text)
    return _YEAR.sub(r"\1", text)


def _numbers(text: str) -> list[Number]:
    numbers = []
    for match in _QUANTITY.finditer(text):
        value = float(match["number"])
        if match["power"]:
            value *= (
                10.0 ** min(int(match["power"]), 400) if int(match["power"]) <= 300 else math.inf
            )
        if match["part"]:
            part = int(match["part"]) / int(match["whole"])
            value += -part if match["number"][0] == "-" else part
        if match["below"]:
            value = value / float(match["below"]) if float(match["below"]) else math.nan
        in_parentheses = match["paren"] and (match["closed"] or match["shut"])
        if in_parentheses and not numbers and match["number"][0] not in "+-":
            value = -value  # an accountant's minus
        scale = SCALES[match["scale"].lower()] if match["scale"] else None
        if not math.isfinite(value * (scale or 1.0)):
            raise Malformed("the number is not finite")
        percent = bool(match["percent"]) or "%" in (match["closed"] or "")
        is_plain = not (match["power"] or match["below"] or match["part"])
        numbers.append(Number(value, scale, percent, is_plain))
    return numbers
