"""Text without the Markdown and LaTeX around it."""

from __future__ import annotations

import re
import unicodedata

_COMMANDS = (
    "text(?:bf|it|rm|sf|tt|sl|sc|normal|up)?|math(?:rm|bf|sf|tt|it|bb)"
    "|operatorname|[mh]box|emph|boldsymbol|bm|pmb|bf|underline|ce"
)
_TEXT_COMMAND = re.compile(
    rf"\\(?:{_COMMANDS})\*?\s*+\{{((?:[^{{}}]++|\{{[^{{}}]*+\}})*+)\}}"  # as in \mathrm{H_{2}O}
)
_BARE_COMMAND = re.compile(
    r"\\(?:left|right|displaystyle|[bB]ig{1,2}[lr]?|limits|checkmark|rm|bf|it|sf|tt"
    r"|small|normalsize|large|Large|LARGE|huge|Huge)(?![A-Za-z])"
    r"|\\(?:text)?color\s*\{\w{1,20}\}"
)
_BETWEEN_THOUSANDS = re.compile(
    r"(?<=\d)(?:\{,\}|\\text\{,\}|\\[,!;: ]|\\thinspace\s?)(?=\d{3}(?!\d))"
)
_SPACE = re.compile(r"\\(?:[,;: ]|\n|\\\s*$|q?quad(?![A-Za-z]))|(?<=[\w}.)])~(?=[\w\\{(])")
_ESCAPED = re.compile(r"\\([$%&#_])")
# begins with a set of characters, for which the regex engine searches much faster
_EMPHASIS = re.compile(
    r"[*_`](?:(?<=\*)(?:(?<![\w*]\*)\*{0,2}(?=[^\s*])|(?<=[^\s*]\*)\*{0,2}(?![\w*]))"
    r"|(?<=_)(?:(?<!\w_)_(?=\S)|(?<=\S_)_(?!\w))|(?<=`)`*)"
)
_WRAPPERS = (
    ("(", ")"),
    ("[", "]"),
    ("{", "}"),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("‘", "’"),
    ("„", "“"),
    ("„", "”"),
    ("«", "»"),
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("\\boxed{", "}"),
    ("*", "*"),
    ("_", "_"),
)
_AMOUNT = re.compile(
    r"[\s$€£%\d.,]*\d[\s$€£%\d.,]*(?:thousand|million|billion|trillion)?\s*", re.IGNORECASE
)
_SUBSCRIPT = re.compile(r"(?<=\w)_\{?([^\W_]+)\}?")
_IN_MATHEMATICS = re.compile(r"\$([A-Za-z]|_\{?\w{1,3}\}?)\$")  # $x$-axis, H$_2$O
_LINK = re.compile(r"\[([^\[\]\n]{1,500})\]\((?=[^\s()]*[/#])[^\s()]{1,500}\)")
_MOST_WRAPPERS = 6


def without_emphasis(text: str) -> str:
    """Text without Markdown's asterisks, underscores, backticks and link addresses; asterisks that
    mean powers stay.

    >>> without_emphasis("The answer **is** `2**3`, *so* __be__ it")
    'The answer is 2**3, so be it'
    """
    return _EMPHASIS.sub("", _LINK.sub(r"\1", text))


def without_latex(text: str) -> str:
    r"""Text without LaTeX's text commands, spaces and escapes. Mathematics stays as it is.

    >>> without_latex(r"\textbf{(B)}\ 1{,}200\text{ km} for \$8")
    '(B) 1200 km for $8'
    """
    text = _BETWEEN_THOUSANDS.sub("", text).replace("\\!", "")
    text = _SPACE.sub(" ", _BARE_COMMAND.sub("", text))
    for _ in range(_MOST_WRAPPERS):
        text, num_commands = _TEXT_COMMAND.subn(r"\1", text)
        if not num_commands:
            break
    return _ESCAPED.sub(r"\1", text)


def bare(text: str) -> str:
    r"""Text without markup, enclosing characters, trailing punctuation and subscript signs, and
    with one blank between words.

    >>> bare(r" '\text{The  Nile}'. "), bare(".5"), bare(r"\text{H}_2\text{O}"), bare("Newton’s")
    ('The Nile', '.5', 'H2O', "Newton's")
    """
    text = _IN_MATHEMATICS.sub(r"\1", without_latex(text))
    plain = unwrapped(without_emphasis(text)).replace("’", "'")
    return " ".join(_SUBSCRIPT.sub(r"\1", plain).split()).rstrip(".,;: ")


def folded(text: str) -> str:
    """`bare` text in lower case, for exact comparison."""
    return unicodedata.normalize("NFKC", bare(text)).casefold()


def unwrapped(text: str) -> str:
    r"""Text without the brackets, quotes and dollar signs that enclose all of it, and without its
    full stop. An amount keeps its parentheses, which accountants use for a loss.

    >>> unwrapped(r"\(\boxed{(B)}\)."), unwrapped("(1,234)."), unwrapped("(a) or (b)")
    ('B', '(1,234)', '(a) or (b)')
    """
    text = _bare(text)
    for _ in range(_MOST_WRAPPERS):
        inner = _peeled(text)
        if inner == text:
            break
        text = _bare(inner)
    return text


def _bare(text: str) -> str:
    text = text.strip()
    if text.endswith(".."):
        return text
    return text.removesuffix(".").removesuffix("。").strip()


def _peeled(text: str) -> str:
    for opening, closing in _WRAPPERS:
        inside = text[len(opening) : len(text) - len(closing)]
        if inside and text.startswith(opening) and text.endswith(closing):
            if opening == "(" and _AMOUNT.fullmatch(inside):
                return text
            if opening not in inside and closing not in inside:
                return inside
            if opening == "\\boxed{" and _balanced(inside):
                return inside
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0
