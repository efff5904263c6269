"""Verdicts: a mark in tags or a word in double brackets. The last deciding one counts.

A reply also names verdicts that it does not give: it restates the rule, denies the other verdict, or supposes one.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.readers.malformed import Malformed
from tasks.readers.tags import elements
from tasks.readers.thoughts import spoken

BRACKETED = re.compile(r"\\?\[\\?\[\s*+(\w+)\s*+\\?\]\\?\]")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_DENIED = re.compile(r"\b(?:not|never|than|instead\s+of)[^\w.!?\n]{0,9}$", re.IGNORECASE)
_IF_AFTER = re.compile(r"[^\w.!?\n]{0,9}\b(?:if|when|unless|otherwise|in\s+case)\b")  # "If" begins a new sentence
_WOULD = re.compile(r"[^\w.!?\n]{0,9}\b(?:would|could|might|needs?|requires?)\b")
_SUPPOSED = re.compile(
    r"\b(?:otherwise|else|unless|in\s+case|would\s+have)\b|^\W*+(?:had|were|when)\b"
    r"|\bif\b.*\b(?:i|would|were|had|could|might|must|should)\b|^\W*+if\b(?:\W+\w+){0,5}\W*$",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"\b(?:so|thus|hence|therefore|final(?:ly)?|verdict|decision|now)\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"\s*+[\"'”’`]*+\s*+\b(?:which|that|is|was|are|to|in|into|inside|at|from|tries|but|so)\b[^\n]*[^.!?)\s\n]\s*$"
)
_OR = re.compile(r"[^\w.!?\n/]*+(?:(?:or|and|versus|vs)\b|/)[^\w.!?\n]*+", re.IGNORECASE)
_MOST = 12  # the deciding verdict is looked for among this many at the end of a reply
_ABOUT = 400  # characters around a verdict that can make it a mere mention


@dataclass(frozen=True)
class Mention:
    """A verdict that a reply names, with the text between it and its neighbours."""

    value: str
    before: str
    after: str


def marked(reply: str, name: str = "score") -> int:
    """1 or 0, from the last deciding `<score>` element.

    >>> marked("<think><score>0</score></think> <Score>**1.0**</Score>")
    1
    >>> marked("<score>0</score> Had it given the year, <score>1</score>.")
    0
    """
    found = elements(reply, name)[-_MOST:]
    if not found:
        raise Malformed(f"no {name} element")
    edges = [(element.start, element.end) for element in found]
    if _QUOTED.fullmatch(reply, edges[-1][1]):
        raise Malformed(f"cut off in a sentence about the {name}")
    value = _decided([Mention(e.text, *around) for e, around in zip(found, _around(reply, edges), strict=True)])
    digit = unicodedata.normalize("NFKC", value).strip(" \n*_`'\"").removesuffix(".0")
    if digit not in ("0", "1"):
        raise Malformed(f"{name} is neither 0 nor 1")
    return int(digit)


def bracketed(reply: str, values: Mapping[str, int]) -> int:
    """The value of the last deciding word in double brackets.

    >>> bracketed("They differ in form only: [[Yes]], and not [[NO]].", {"YES": 1, "NO": 0})
    1
    >>> bracketed("Do they say the same? They do not. [[NO]]", {"YES": 1, "NO": 0})
    0
    """
    said = spoken(reply)
    found = [match for match in BRACKETED.finditer(said) if match[1].upper() in values][-_MOST:]
    if not found:
        raise Malformed("no verdict")
    around = _around(said, [match.span() for match in found])
    return values[_decided([Mention(match[1].upper(), *text) for match, text in zip(found, around, strict=True)])]


def _around(text: str, spans: list[tuple[int, int]]) -> list[tuple[str, str]]:
    """The text before and after each span, up to the neighbouring spans, without thoughts."""
    starts, ends = [*(start for start, _ in spans), len(text)], [0, *(end for _, end in spans)]
    return [
        (spoken(text[max(ends[i], start - _ABOUT) : start]), spoken(text[end : min(starts[i + 1], end + _ABOUT)]))
        for i, (start, end) in enumerate(spans)
    ]


def _decided(mentions: list[Mention]) -> str:
    deciding = [m for m in mentions if not (_DENIED.search(m.before) or _IF_AFTER.match(m.after))]
    if len({mention.value for mention in mentions}) > 1:
        offered = _offered(mentions)
        deciding = [m for m in deciding if m not in offered and not _is_supposed(m)]
    if not deciding:
        raise Malformed("no verdict is decided on")
    return deciding[-1].value


def _is_supposed(mention: Mention) -> bool:
    """Whether the sentence of a verdict only supposes it."""
    sentence = _SENTENCE_END.split(mention.before)[-1]
    supposed = _WOULD.match(mention.after) or _SUPPOSED.search(sentence)
    return bool(supposed) and not _CONCLUDES.search(sentence)


def _offered(mentions: list[Mention]) -> list[Mention]:
    """Pairs of different verdicts joined by "or", which decide nothing."""
    pairs = itertools.pairwise(mentions)
    return [m for a, b in pairs if a.value != b.value and _OR.fullmatch(a.after) for m in (a, b)]
