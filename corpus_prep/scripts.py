"""Scripts written without spaces between words; in these, one or two characters count as a word."""

from __future__ import annotations

import re

UNSPACED = (  # first and last code point
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Japanese syllables
    (0x3400, 0x4DBF),  # Chinese characters
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2FFFF),
)
# for a regular expression
UNSPACED_CLASS = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)
_WORD = re.compile(rf"(?:[{UNSPACED_CLASS}]|[^\s{UNSPACED_CLASS}]+)\s*")


def split_words(text: str) -> list[str]:
    """The words of a text, each with the blanks after it.

    Joined, they are the text without leading blanks. The last one ends in a blank if words of its
    script do.

    >>> split_words("two words"), split_words("用GPT 写")
    (['two ', 'words '], ['用', 'GPT ', '写'])
    """
    words = _WORD.findall(text)
    if words and re.fullmatch(rf"[^\s{UNSPACED_CLASS}]+", words[-1]):
        words[-1] += " "
    return words
