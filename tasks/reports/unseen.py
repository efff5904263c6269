"""Invisible characters that change how text reads: controls, direction marks, zero-width blanks, tags."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e01ef\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""The text with its invisible characters as escapes.

    >>> print(visible("a\u202eb \x1b[2J"))
    a\u202eb \x1b[2J
    """
    return UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)
