"""Elements in tags: `<answer>...</answer>`, in any case and with attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.readers.malformed import Malformed
from tasks.readers.thoughts import without_closed_blocks

_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
PLACEHOLDERS = ("and", "or", "...", "…")  # "I write it between <answer> and </answer>"
_QUOTES = "`\"'“”‘’ "
_MENTIONED = re.compile(
    r"[`\"'”’]*\s*(?:and\s*[`\"'“‘]*</|tags?\b|elements?\b|markers?\b)", re.IGNORECASE
)
_NOTHING_MORE = re.compile(r"[\s`*]*(?:(?:<\|[^<>]{0,64}\|>|</s>)\s*)*")


@dataclass(frozen=True)
class Element:
    """An element: its text, stripped and without think blocks; its attributes as written; its span
    in the reply, including the tags."""

    text: str
    attributes: str
    start: int
    end: int


def last_element(reply: str, name: str) -> str:
    """The text of the last `<name>` element. Raises Malformed if there is none or it is empty.

    >>> last_element("<think><task>x</task></think><Task id='1'> Why? </Task>", "task")
    'Why?'
    """
    parts = elements(reply, name)
    if not parts:
        raise Malformed(f"no {name} element")
    if not parts[-1].text:
        raise Malformed(f"empty {name} element")
    return parts[-1].text


def elements(reply: str, name: str, *, open_thoughts: bool = True) -> list[Element]:
    """The complete elements outside of think blocks, in order, without those that only restate the
    instruction.

    If the last think block is not closed and there is no other element, an element at the end of
    the reply counts: models that write think tags as plain text forget to close them.
    `open_thoughts=False` disables this.
    """
    scan = _Scan(reply)
    for mark in re.finditer(
        rf"<(/?)(?:(think(?:ing)?)\s*|{name}(?=[\s>])([^<>]*))>", reply, re.IGNORECASE
    ):
        if mark[2]:
            scan.think(mark)
        elif mark[1]:
            scan.close(mark)
        else:
            scan.open(mark)
    return scan.result(open_thoughts)


def in_order(
    reply: str, names: Sequence[str], may_be_empty: Sequence[str] = ()
) -> dict[str, Element]:
    """The last element of each name. Raises Malformed if one is missing, or empty and not one of
    `may_be_empty`, or if the order differs.

    >>> [
    ...     part.text
    ...     for part in in_order(
    ...         "<plan>p</plan> so <answer>a</answer>", ("plan", "answer")
    ...     ).values()
    ... ]
    ['p', 'a']
    """
    part_of = {}
    for name in names:
        some = elements(reply, name)
        if not some or name not in may_be_empty:
            last_element(reply, name)  # raises for a missing or empty element
        part_of[name] = some[-1]
    places = [part.start for part in part_of.values()]
    if places != sorted(places):
        raise Malformed("the parts are out of order")
    return part_of


class _Scan:
    """One pass over the tags of a reply."""

    def __init__(self, reply: str) -> None:
        self.reply = reply
        self.spoken: list[Element] = []
        self.thought: list[Element] = []
        self.opened: re.Match[str] | None = None
        self.outer: re.Match[str] | None = None
        self.thinking = self.doubtful = False

    def think(self, mark: re.Match[str]) -> None:
        closes = bool(mark[1])
        if self.opened and not self.thinking:
            # closes a thought that the template opened, or belongs to the element's text
            self.doubtful |= closes
        elif closes:
            if not self.thinking:
                self.spoken.clear()
            self.thought.clear()
            self.thinking = False
            self.opened = None
            self.outer = None
        else:
            self.thinking = True

    def open(self, mark: re.Match[str]) -> None:
        if self.opened and (_MENTIONED.match(self.reply, mark.end()) or self._in_backticks(mark)):
            return  # the element's own text mentions tags
        if self.doubtful:
            self.spoken.clear()
        self.outer = self.opened
        self.opened = mark
        self.doubtful = False

    def close(self, mark: re.Match[str]) -> None:
        if self.opened and self._in_backticks(mark) and not self._in_backticks(self.opened):
            return
        parts = self.thought if self.thinking else self.spoken
        # an element within an element of the same name
        if self.opened is None and self.outer and parts:
            self.opened = self.outer
            self.outer = None
            inner = parts.pop()
            if not (
                self._text(self.opened.end(), inner.start) or self._text(inner.end, mark.start())
            ):
                # a doubled tag
                parts.append(replace(inner, start=self.opened.start(), end=mark.end()))
                self.opened = None
        if self.opened is None:
            return
        text = self._text(self.opened.end(), mark.start())
        if not self._only_named(parts, mark) and text.lower().strip(_QUOTES) not in PLACEHOLDERS:
            parts.append(
                Element(text, (self.opened[3] or "").strip(), self.opened.start(), mark.end())
            )
        self.opened = None
        self.doubtful = False

    def _only_named(self, parts: list[Element], mark: re.Match[str]) -> bool:
        """Whether a sentence after an element only names its tags: "it is in <answer></answer>"."""
        if not parts or self.opened is None or self.opened.end() != mark.start():
            return False
        between = self.reply[parts[-1].end : self.opened.start()]
        return bool(re.search(r"\w", between))

    def _in_backticks(self, mark: re.Match[str]) -> bool:
        around = (
            self.reply[mark.start() - 1 : mark.start()] + self.reply[mark.end() : mark.end() + 1]
        )
        return around == "``"

    def _text(self, start: int, end: int) -> str:
        """Visible text without thoughts."""
        text = without_closed_blocks(self.reply[start:end]).strip()
        if text.strip(_INVISIBLE):
            return text
        return ""

    def result(self, open_thoughts: bool) -> list[Element]:
        if self.doubtful:
            self.spoken.clear()
        if open_thoughts and self.thinking and not self.spoken and self.thought:
            last = self.thought[-1]
            if _NOTHING_MORE.fullmatch(self.reply, last.end):
                return [last]
        return self.spoken
