"""Fenced Markdown blocks, each labelled with its kind: "```python" ... "```"."""

from __future__ import annotations

import re

from tasks.readers.malformed import Malformed

_BLOCK = re.compile(
    r"^[ \t]*```[ \t]*(\w+)[ \t]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"```(\w+) (.*?) ```(?!\w)")


def fenced(name: str, text: str) -> str:
    """A text as a fenced block.

    >>> fenced("input", "1, 2")
    '```input\\n1, 2\\n```'
    """
    return f"```{name}\n{text}\n```"


def blocks(text: str, name: str) -> list[str]:
    """The contents of the fenced blocks of a kind, in order.

    >>> blocks("```input\\n1, 2\\n```\\n```input\\n3, 4\\n```", "input")
    ['1, 2', '3, 4']
    """
    return [
        match[2].strip("\n") for match in _BLOCK.finditer(text) if match[1].lower() == name.lower()
    ]


def block(text: str, name: str) -> str:
    """The last non-empty block of a kind. Raises Malformed if there is none."""
    some = [part for part in blocks(text, name) if part.strip()]
    if not some:
        raise Malformed(f"no {name} block")
    return some[-1]


def unfolded(reply: str) -> str:
    """A reply with each of its blocks on separate lines, for a model that writes words separated by
    spaces and no line breaks.

    >>> unfolded("<answer> ```input 4 ``` </answer>")
    '<answer> \\n```input\\n4\\n```\\n </answer>'
    """
    return _INLINE.sub(lambda match: f"\n{fenced(match[1], match[2])}\n", reply)
