"""Remove invisible characters, which hide words from every search."""

from __future__ import annotations

import re

CONTROLS = bytes([*range(9), *range(0x0E, 0x20), 0x7F])  # ASCII's, except tab, line and page breaks
# not U+200C and U+200D: Persian, Indic scripts and emoji need them
UNSEEN = "\xad\u200b\u2060\ufeff\ufffe\uffff"
INVISIBLE = re.compile(f"[{re.escape(CONTROLS.decode() + UNSEEN)}]")
BINARY_SHARE = 0.01  # content with a larger share of NULs is not text


def is_binary(content: bytes) -> bool:
    """Whether content has more than stray NULs.

    A filing of 928,682 characters with five of them is a text.

    >>> is_binary(b"PK\\0\\0"), is_binary(b"x" * 1000 + bytes(5)), is_binary(b"")
    (True, False, False)
    """
    return content.count(0) > BINARY_SHARE * len(content)


def storable(text: str) -> str:
    """The text with surrogates, which no table can hold, joined if they are pairs; others become
    U+FFFD.

    >>> storable("\\ud83d\\ude00 \\ud800!")
    '😀 �!'
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def repaired(text: str) -> str:
    """The text without control characters, soft hyphens, zero-width spaces and byte order marks.

    Surrogates are joined if they are pairs; others become U+FFFD.

    >>> repaired("re\\xadpair\\0ed\\u200b text\\n"), repaired("\\ud83d\\ude00 \\ud800!")
    ('repaired text\\n', '😀 \ufffd!')
    """
    text = storable(text)
    encoded = text.encode()
    is_clean = len(encoded.translate(None, CONTROLS)) == len(encoded) and not any(
        c in text for c in UNSEEN
    )
    if is_clean:
        return text
    return INVISIBLE.sub("", text)
