"""Think blocks, and what a reply says outside of them."""

from __future__ import annotations

import re

MARK = re.compile(r"<(/?)think(?:ing)?\s*>", re.IGNORECASE)


def spoken(reply: str) -> str:
    """The reply without its think blocks. An unclosed block hides all text after it; a closing tag
    without an opening one (the chat template may open the block) hides all text before it.

    >>> (
    ...     spoken("<think>a</think> b <think>c</think> d"),
    ...     spoken("a </think> b"),
    ...     spoken("a <think> b"),
    ... )
    (' b  d', ' b', 'a ')
    """
    parts = []
    thinking = False
    at = 0
    for mark in MARK.finditer(reply):
        if not thinking:
            parts.append(reply[at : mark.start()])
        if mark[1] and not thinking:
            parts.clear()
        thinking = not mark[1]
        at = mark.end()
    return "".join(parts if thinking else [*parts, reply[at:]])


def is_thinking(reply: str) -> bool:
    """Whether the reply ends inside an open think block.

    >>> is_thinking("<think>a</think> b"), is_thinking("a <think> b")
    (False, True)
    """
    marks = MARK.findall(reply)
    return bool(marks) and not marks[-1]


def without_closed_blocks(text: str) -> str:
    """Text without its complete think blocks; an unpaired tag counts as text.

    >>> without_closed_blocks("<think>a</think>b </think> <think>")
    'b </think> <think>'
    """
    kept = []
    at = 0
    opened = -1
    for mark in MARK.finditer(text):
        if not mark[1] and opened < 0:
            opened = mark.start()
        elif mark[1] and opened >= 0:
            kept.append(text[at:opened])
            at = mark.end()
            opened = -1
    return "".join([*kept, text[at:]])
