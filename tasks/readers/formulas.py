"""Mathematics: is one formula equal to another? Both notations, plain (`2*pi*r`) and LaTeX (`2\\pi
r`), are converted to LaTeX, and Math-Verify decides. Math-Verify parses numbers itself and drops
their units. A formula with symbols is parsed here, with Math-Verify's own LaTeX parser, so that g
is not a gram, V differs from v, and I is not the imaginary unit.

Math-Verify can run forever or exhaust memory (`9^{9^{9^9}}`): call it only where it can be killed,
as `tasks.match` does.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import unicodedata
from typing import Any

from tasks.readers.malformed import Malformed
from tasks.readers.markup import bare
from tasks.readers.numbers import WRITTEN, is_finite

# Math-Verify's default: numbers are rounded to this many decimal places before they are compared
FLOAT_DIGITS = 6
# Math-Verify takes all numbers near 0 for equal, so numbers below SMALL must also agree within this
# relative tolerance.
SMALL = 1e-3
SMALL_TOLERANCE = 1e-4
MAX_CHARS = 10_000
MAX_UNIT = 200
_GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|upsilon|phi"
    "|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Phi|Psi|Omega|hbar"
)
_SAME = "sin|cos|tan|cot|sec|csc|sinh|cosh|tanh|arcsin|arccos|arctan|ln|log|min|max|gcd"
_RENAMED = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "cosec": "csc",
    "log10": "log_{10}",
    "log2": "log_2",
}
_NAME = re.compile(
    rf"(?<![\\A-Za-z_])(?<!_\{{)(?:({_GREEK})(?:_?(\d+))?|({'|'.join(_RENAMED)})|({_SAME}))(?![A-Za-z0-9])",
)
_CALL = re.compile(r"(?<![\\A-Za-z])(sqrt|exp|abs)\s*\(")
_LONG_INDEX = re.compile(r"_([A-Za-z]{2,}\d*)")
_WRITTEN = {"sqrt": ("\\sqrt{", "}"), "exp": ("e^{", "}"), "abs": ("|", "|")}
_INDEXED = re.compile(r"(?<![\\A-Za-z_])([A-Za-z])(\d{1,3})(?![\d.])")
_SCIENTIFIC = re.compile(r"(?<![\w.])([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d+)(?!\w)")
_SEPARATOR = re.compile(r"(?<=\d)(?:\{,\}|\\text\{,\}|\\[,!;: ])(?=\d{3}(?!\d))")
_MARKS = re.compile(
    r"(?:US|CA|AU|HK|NZ|[AC])?\\\$(?=\d)|\\\$|[$€£¥₹]|\\!"
    r"|(?<![\w*])\*\*(?=\S)|(?<=\S)\*\*(?![\w*({\\-])"
)
_VARIANT = re.compile(r"\\var(?=epsilon|phi|theta|rho)|\\ell(?![A-Za-z])")
_SYMBOL = re.compile(
    r"\\[A-Za-z]+|_\{[^{}]*\}|_\w|(?P<letter>I|E(?=_))(?:_\{(?P<index>\w+)\}|_(?P<digit>\w))?|(?P<distance>d)(?!_)"
)
_CALCULUS = re.compile(r"\\int|\\frac\s*\{d(?:[^{}]|\{[^{}]*\})*\}\s*\{d")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_TEXT = re.compile(r"(?:\\(?:text|mathrm|operatorname|mbox|begin|end)[a-z]*\s*|_)\{[^{}]*\}")
_KNOWN_WORDS = {"sqrt", "floor", "ceil", "frac"}
_RELATION = re.compile(r"(?:\\(?:[gln]eq?|[gl]t)(?![A-Za-z])|[<>≤≥≠])")
_NAMED_VALUE = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?\s*=([^=,;]+)")
_NUMBER_IN_TEXT = re.compile(
    r"\\(?:text|mathrm)\s*\{\s*([-−+]?\d[\d.,]*)(%|\s+(?!(?:and|or|to)\b)[^{}\d]*)?\}"
)
_REPEATING = re.compile(r"(?<![\d.])(\d{0,9})\.(\d{0,9})\\(?:overline|bar)\s*\{(\d{1,9})\}")
_UNIT = re.compile(  # as in "42 cars"
    r"(.*\d)\s+(?!(?:and|or|to|times|squared|cubed|factorial|per|percent|hundred|thousand|million|billion|trillion)\b)"
    r"[a-z]{3,}(?:[ /][a-z]+){0,2}"
)
_MEASURE = (
    r"(?:(?:[kMGTcmnpμµ]|\\mu\s*)?"
    r"(?:mol|eV|cal|Hz|Pa|bar|bits?|bytes?|[mgsAKNJWCVFTLlBΩ]|\\Omega)"
    r"|min|hr?|kWh|rad|rpm|dB|atm"
    r"|in|ft|yd|mi|lbs?|oz|mph|USD|EUR|GBP|CHF|JPY|INR)(?:\s*\^\s*\{?-?\d\}?|[²³])?"
)
_MEASURED = re.compile(  # 42 m/s, 42cm^2, 42 USD; one letter without a blank is a factor
    rf"(.*\d)(?:\s+|(?=\S\S))({_MEASURE}(?:\s*(?:[/·\s]|\\cdot)\s*{_MEASURE}){{0,2}})"
)
_SCALE = re.compile(r"(.*\d)\s*(hundred|thousand|million|billion|trillion)(?:\s+[a-z]+)?")
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_LEAD = re.compile(
    r"(?:ans(?:wer)?\s*[:=]|(?:approximately|approx\.|about|roughly|around|nearly)\s)"
    r"\s*(?=[\d.\\-])",
    re.IGNORECASE,
)
_ABOUT = re.compile(r"\s*(?:\\approx(?![A-Za-z])|≈)\s*")
_UNBOUNDED = ("\\infty", "-\\infty")
_MINUS = re.compile(r"^[–−](?=\s*[\d.\\])")
_RAISED = re.compile("⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_ROOT = re.compile(r"√(\d+|[A-Za-z])")
_EULER = re.compile(r"\\(?:mathrm|text|operatorname)\s*\{e\}(?=\s*\^)")
_EXTREME = re.compile(r"_\{\\(max|min)\}")
_INDEX_E = re.compile(r"_e(?![A-Za-z0-9])")  # Math-Verify's parser takes this e for a number
_TIMES_TEN = re.compile(r"(?<=\d)\s*[x×]\s*(?=10\s*\^)")
_INTEGER = re.compile(r"[-+]?[0-9]{1,18}")

# Math-Verify warns at every call that its time limit is off
logging.getLogger("math_verify").setLevel(logging.ERROR)


def load() -> None:
    """Import Math-Verify. This takes a second, so only processes that compare formulas do it,
    before the time limit starts."""
    import latex2sympy2_extended
    import math_verify

    assert latex2sympy2_extended and math_verify


def same_formula(reference: str, answer: str) -> bool:
    """Whether two formulas are equal. A reference in words is compared as text.

    Raises Malformed if the reference is not finite, too long or not mathematics, or if Math-Verify
    fails.

    >>> (
    ...     same_formula("2*pi*r", "2\\\\pi r"),
    ...     same_formula("1200", "\\\\$1{,}200"),
    ...     same_formula("x", "y"),
    ... )
    (True, True, False)
    """
    if len(reference) > MAX_CHARS:
        raise Malformed("the reference is too long")
    given, wanted = (
        _MINUS.sub("-", bare(text).replace("∞", "\\infty").removeprefix("+"))
        for text in (answer, reference)
    )
    if wanted in _UNBOUNDED:
        return given == wanted
    if not is_finite(reference):
        raise Malformed("the reference is not finite")
    if len(answer) > MAX_CHARS or not is_finite(answer):
        return False
    if given == wanted:
        return True
    if bool(_RELATION.match(given)) != bool(_RELATION.match(wanted)):
        return False  # Math-Verify reads "> 5" as 5
    if _INTEGER.fullmatch(given) and _INTEGER.fullmatch(wanted):
        # most answers are integers, and Math-Verify takes milliseconds
        return int(given) == int(wanted)
    if (
        WRITTEN.fullmatch(given)
        and WRITTEN.fullmatch(wanted)
        and math.isclose(float(given), float(wanted))
    ):
        return True  # 5.000000000000002 is 5 for Python but not for Math-Verify
    if WRITTEN.fullmatch(wanted) and (number := _bare_number(given)):
        return same_formula(reference, number)
    if len(sides := _ABOUT.split(given)) == 2 and all(sides):
        return any(same_formula(reference, side) for side in sides)
    named = _NAMED_VALUE.fullmatch(wanted)
    if named and "=" not in given:
        return same_formula(named[1], answer)
    return not in_words(reference) and _equal(reference, answer)


def _bare_number(text: str) -> str | None:
    """An amount without its unit or the word before it, and with its scale as a power of ten; None
    for a text that has none of these."""
    if len(text) >= MAX_UNIT:
        return None
    if lead := _LEAD.match(text):
        return text[lead.end() :]
    if unit := _UNIT.fullmatch(text) or _MEASURED.fullmatch(text):
        return unit[1]
    if scale := _SCALE.fullmatch(text):
        return f"{scale[1]} \\times 10^{_POWERS[scale[2]]}"
    return None


def in_words(reference: str) -> bool:
    """Whether a reference consists of words, which Math-Verify takes for products of letters:
    `hello` equals `olleh`.

    >>> in_words("hello"), in_words("theta + sqrt(x)"), in_words(r"\\frac{1}{2}\\text{ metres}")
    (True, False, False)
    """
    return bool(set(_WORD.findall(_TEXT.sub("", as_latex(reference)))) - _KNOWN_WORDS)


def _equal(reference: str, answer: str) -> bool:
    """Math-Verify's verdict. An answer without mathematics is not equal. Raises Malformed for a
    reference without mathematics."""
    from math_verify import verify

    gold = symbolic(reference)
    given = symbolic(answer) if gold else parsed(answer)
    gold = gold or parsed(reference)
    if not gold:
        raise Malformed("Math-Verify finds no mathematics in the reference")
    if given and all(getattr(side[0], "is_Symbol", False) for side in (gold, given)):
        return gold == given  # Math-Verify ignores the case of single symbols
    try:
        is_equal = bool(given) and verify(
            gold, given, float_rounding=FLOAT_DIGITS, timeout_seconds=None, raise_on_error=True
        )
    except Exception as problem:
        raise Malformed(f"Math-Verify: {type(problem).__name__}") from problem
    return is_equal and not _are_unlike(small_number(gold), small_number(given))


def small_number(expressions: list) -> float | None:
    """The value of a formula that is a real number below SMALL and not 0; otherwise None."""
    expression = expressions[0]
    if not getattr(expression, "is_number", False) or expression.is_real is False:
        return None
    try:
        value = float(expression)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if 0 < abs(value) < SMALL else None


def _are_unlike(first: float | None, second: float | None) -> bool:
    """Whether two small numbers differ; False if either is None."""
    if first is None or second is None:
        return False
    return not math.isclose(first, second, rel_tol=SMALL_TOLERANCE)


@functools.lru_cache(maxsize=1024)
def parsed(text: str) -> list:
    """What Math-Verify parses from a text, without parts that it merely copies. Raises Malformed
    if it fails."""
    from math_verify import parse

    try:
        formula = f"${as_latex(text)}$"
        # its signature lacks None, which means no time limit
        limit: Any = None
        expressions = parse(formula, parsing_timeout=limit, raise_on_error=True)
        return [read for read in expressions if not isinstance(read, str)]
    except Exception as problem:
        raise Malformed(f"Math-Verify: {type(problem).__name__}") from problem


@functools.lru_cache(maxsize=1024)
def symbolic(text: str) -> list:
    """The formula in a text if it has symbols and can be parsed; otherwise an empty list."""
    from latex2sympy2_extended import latex2sympy

    try:
        plain = _with_plain_symbols(as_latex(text))
        expression = latex2sympy(plain, None, None, False, *_as_written())
        if getattr(expression, "free_symbols", None):
            return [expression]
        return []
    except Exception:  # not a formula: `parsed` finds out what it is
        return []


@functools.cache
def _as_written() -> tuple[Any, Any]:
    """The parser's settings: letters keep their case, units stay, and no fraction is read as a
    mixed number."""
    from latex2sympy2_extended import NormalizationConfig
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig

    normal = {"basic_latex": True, "units": False, "malformed_operators": True, "nits": True}
    exact = NormalizationConfig(**normal, boxed="none", equations=False)
    return exact, ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)


def _with_plain_symbols(latex: str) -> str:
    """Rename letters that the parser would misread: a current I is not the imaginary unit, an
    energy E_a not an expectation, a distance d not a differential."""
    if _CALCULUS.search(latex):
        return latex

    def named(match: re.Match[str]) -> str:
        if match["letter"]:
            return f"Q_{{{match['letter']}{match['index'] or match['digit'] or ''}}}"
        if match["distance"]:
            return "d_{d}"
        return match[0]

    return _SYMBOL.sub(named, latex)


def as_latex(text: str) -> str:
    r"""A formula as LaTeX that Math-Verify can read. Converts names of functions and Greek letters,
    roots, powers written `**`, indices and scientific notation; drops dollar signs and thousands
    separators.

    >>> (
    ...     as_latex("$2*x**2$"),
    ...     as_latex("1.5e3"),
    ...     as_latex("v0 + sqrt(2*g*h)*sin(theta)"),
    ...     as_latex("exp(-x)"),
    ... )
    ('2*x^2', '1.5 \\times 10^{3}', 'v_{0} + \\sqrt{2*g*h}*\\sin(\\theta)', 'e^{-x}')
    """
    text = _SEPARATOR.sub("", _MARKS.sub("", _without_unicode(text)))
    text = _EULER.sub("e", text.replace("**", "^").replace("~", " ").replace("\\mathcal{O}", "O"))
    text = _VARIANT.sub(lambda match: "l" if "ell" in match[0] else "\\", text)
    text = _TIMES_TEN.sub(" \\\\times ", _NUMBER_IN_TEXT.sub(r"\1\\text{\2}", text)).replace(
        "−", "-"
    )
    text = _REPEATING.sub(_as_fraction, text)
    text = _SCIENTIFIC.sub(r"\1 \\times 10^{\2}", text)
    text = _NAME.sub(_named, _calls_as_latex(text))
    text = _INDEX_E.sub("_{e}", _LONG_INDEX.sub(r"_{\1}", _EXTREME.sub(r"_{\1}", text)))
    return _INDEXED.sub(r"\1_{\2}", text).strip().rstrip(".,;")


def _without_unicode(text: str) -> str:
    """A text with roots, superscript and subscript digits and product dots as LaTeX."""
    text = _RAISED.sub(lambda match: f"^{{{_digits(match[0])}}}", text)
    text = _LOWERED.sub(lambda match: f"_{{{_digits(match[0])}}}", text)
    return _ROOT.sub(r"\\sqrt{\1}", text).replace("√(", "sqrt(").replace("·", "\\cdot ")


def _digits(text: str) -> str:
    return unicodedata.normalize("NFKC", text).replace("−", "-")


def _named(match: re.Match[str]) -> str:
    greek, index, renamed, same = match.groups()
    if greek:
        return f"\\{greek}" + (f"_{{{index}}}" if index else "")
    return f"\\{_RENAMED[renamed] if renamed else same}"


def _as_fraction(match: re.Match[str]) -> str:
    """A repeating decimal: 0.1\\overline{6} is (16 - 1)/90."""
    once = match[1] + match[2]
    repeated = match[1] + match[2] + match[3]
    below = 10 ** len(match[2]) * (10 ** len(match[3]) - 1)
    return f"\\frac{{{int(repeated) - int(once or 0)}}}{{{below}}}"


def _calls_as_latex(text: str) -> str:
    """`sqrt(x)`, `exp(x)` and `abs(x)` as LaTeX, nested ones included; an unclosed call stays as
    it is."""
    closing = {}
    opened = []
    for parenthesis in re.finditer(r"[()]", text):
        if parenthesis[0] == "(":
            opened.append(parenthesis.start())
        elif opened:
            closing[opened.pop()] = parenthesis.start()
    pieces = list(text)
    changed = False
    for call in _CALL.finditer(text):
        end = closing.get(call.end() - 1)
        if end is not None:
            before, after = _WRITTEN[call[1]]
            pieces[call.start() : call.end()] = [before, *[""] * (len(call[0]) - 1)]
            pieces[end] = after
            changed = True
    if changed:
        return "".join(pieces)
    return text
