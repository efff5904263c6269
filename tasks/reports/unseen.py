"""Invisible characters that change how text reads, such as direction marks and controls."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls
    "\u00ad\u200b-\u200f\u2060-\u206f\ufeff"  # zero-width blanks and joiners
    "\u061c\u180e\u2028-\u202e"  # direction marks and separators of lines
    "\ufe00-\ufe0f\ufff9-\ufffb\U000e0000-\U000e01ef"  # variation selectors, tags
    "\ud800-\udfff"  # halves of surrogate pairs
    "]"
)


def visible(text: str) -> str:
    r"""The text with its invisible characters as escapes.

    >>> print(visible("a\u202eb \x1b[2J"))
    a\u202eb \x1b[2J
    """
    return UNSEEN.sub(lambda match: ascii(match[0])[1:-1], text)
