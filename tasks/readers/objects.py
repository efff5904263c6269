"""JSON objects in a reply, with or without a code fence, amid prose, and with typical errors of
models.

A trailing comma, a line break within a string and unescaped LaTeX backslashes are accepted.
Anything else that JSON forbids is not an object: a repair by guessing would accept half a reply, or
a Python dictionary.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from tasks.readers.malformed import Malformed
from tasks.readers.thoughts import spoken

ELLIPSES = ("...", "…")
MAX_DEPTH = 100
MAX_CHARS = 30_000  # objects are searched for in this many last characters of a reply
_OPENING = re.compile(r'\{(?=\s*+")')
_TOKEN = re.compile(
    r'\s*+(?:(?P<string>"(?:[^"\\]++|\\.)*+")|(?P<mark>[{}\[\],:])'
    r"|(?P<number>-?\d++(?:\.\d++)?(?:[eE][-+]?\d++)?)(?![\w.])|(?P<word>true|false|null)\b)",
    re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
# JSON reads \nu, \theta, \beta, \frac and \rho as a control character and the rest of the command
_BEGUN_BY_N = "abla|eg|eq?|ot|otin|u|mid|parallel|subseteq|rightarrow|Rightarrow"
_BEGUN_BY_T = "heta|imes|ext(?:bf|it|rm|sf|tt)?|anh?|au|o|op|frac|ilde|riangle|herefore|binom"
_ESCAPE = re.compile(
    r'\\(?:["\\/]|u[0-9a-fA-F]{4}|[bfr](?![A-Za-z])'
    rf"|n(?!(?:{_BEGUN_BY_N})(?![A-Za-z]))|t(?!(?:{_BEGUN_BY_T})(?![A-Za-z]))|(?P<symbol>[$%&#_'*`-])|(?P<command>))"
)


class Unescaped(str):
    """Text whose unescaped backslashes were restored."""

    __slots__ = ()


def last_object(reply: str, keys: Sequence[str] = ()) -> dict[str, Any]:
    r"""The last JSON object with all of `keys`, or else the last of those with the most of them. An
    object that only shows the form, with an ellipsis under such a key, is ignored. Raises Malformed
    if there is none.

    Its texts are of type `Unescaped` if a LaTeX command had to be repaired.

    >>> last_object('<think>{"a": 1}</think> {"a": "\\frac12", "b": [2,]} for {"c": 3}', ["a"])
    {'a': '\\frac12', 'b': [2]}
    """
    candidates = [value for _, value in objects(spoken(reply)[-MAX_CHARS:])]
    candidates = [
        value for value in candidates if not any(value.get(key) in ELLIPSES for key in keys)
    ]
    if not candidates:
        raise Malformed("no JSON object")

    def num_keys(value: dict[str, Any]) -> int:
        return sum(key in value for key in keys)

    return max(reversed(candidates), key=num_keys)  # of equal ones the first, the last in the text


def objects(text: str) -> list[tuple[int, dict[str, Any]]]:
    """Every outermost JSON object with its position, in order. An object in double braces, as
    templates write them, does not count."""
    whole: list[tuple[int, int, dict[str, Any]]] = []
    # braces that an earlier attempt reached: they failed with it, or are in `whole`
    seen: set[int] = set()
    end = 0
    for opening in _OPENING.finditer(text):
        if opening.start() >= end and opening.start() not in seen:
            end = _Attempt(text, seen, whole).read(opening.start()) or end
    return [
        (start, value)
        for start, end, value in sorted(whole, key=lambda w: w[0])
        if not _doubled(text, start, end)
    ]


def _doubled(text: str, start: int, end: int) -> bool:
    return text[max(0, start - 1) : start] == "{" and text[end : end + 1] == "}"


class _Attempt:
    """One attempt to read an object, without recursion. Objects completed before it fails are kept
    in `whole`."""

    def __init__(
        self, text: str, seen: set[int], whole: list[tuple[int, int, dict[str, Any]]]
    ) -> None:
        self.text = text
        self.seen = seen
        self.whole = whole
        self.stack: list[tuple[int, Any]] = []
        self.keys: list[str] = []
        self.expects = "value"  # or "item" (a value or ]), "key" (or }), ":", "," (or the end)

    def read(self, at: int) -> int | None:
        """The end of the object that begins at `at`; None if there is no object."""
        while token := _TOKEN.match(self.text, at):
            at = token.end()
            if not self._take(token):
                return None
            if not self.stack:
                return at
        return None

    def _take(self, token: re.Match[str]) -> bool:
        mark = token["mark"]
        if self.expects == "key" and token["string"]:
            self.keys.append(decoded(token["string"]))
            self.expects = ":"
            return True
        if mark in (":", ","):
            fits = mark == self.expects
            if mark == ":":
                self.expects = "value"
            elif isinstance(self.stack[-1][1], dict):
                self.expects = "key"
            else:
                self.expects = "item"
            return fits
        if mark in ("}", "]"):
            fits = self.expects in ((",", "key") if mark == "}" else (",", "item"))
            return (
                fits
                and isinstance(self.stack[-1][1], dict if mark == "}" else list)
                and self._close(token.end())
            )
        return self.expects in ("value", "item") and self._value(token)

    def _value(self, token: re.Match[str]) -> bool:
        if token["mark"]:
            if token["mark"] == "{":
                self.seen.add(token.end() - 1)
            self.stack.append((token.end() - 1, {} if token["mark"] == "{" else []))
            self.expects = "key" if token["mark"] == "{" else "item"
            return len(self.stack) <= MAX_DEPTH
        if token["number"]:
            value = number(token["number"])
            return value is not None and self._put(value)
        return self._put(decoded(token["string"]) if token["string"] else _WORDS[token["word"]])

    def _close(self, end: int) -> bool:
        start, value = self.stack.pop()
        if isinstance(value, dict):
            while self.whole and self.whole[-1][0] > start:
                self.whole.pop()
            self.whole.append((start, end, value))
        return self._put(value)

    def _put(self, value: Any) -> bool:
        self.expects = ","
        if self.stack:
            within = self.stack[-1][1]
            if isinstance(within, dict):
                within[self.keys.pop()] = value
            else:
                within.append(value)
        return True


def number(text: str) -> int | float | None:
    """The value of a JSON number; None if it is not finite or has more digits than Python reads."""
    try:
        value = float(text) if re.search(r"[.eE]", text) else int(text)
    except ValueError:
        return None
    if isinstance(value, int) or math.isfinite(value):
        return value
    return None


def decoded(literal: str) -> str:
    r"""The text of a JSON string literal.

    >>> decoded(r'"\theta, \\frac12, \$8 and \u00e9"'), decoded(r'"one\ntwo"')
    ('\\theta, \\frac12, $8 and é', 'one\ntwo')
    """
    if "\\" not in literal:
        return literal[1:-1]
    commands = 0

    def repaired(match: re.Match[str]) -> str:
        nonlocal commands
        if match["symbol"]:
            return match["symbol"]
        commands += match["command"] is not None
        if match["command"] is None:
            return match[0]
        return "\\\\"

    text = json.loads(_ESCAPE.sub(repaired, literal), strict=False)
    # an unpaired surrogate cannot be stored
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if commands:
        return Unescaped(text)
    return text
