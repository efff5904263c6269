"""A named text, written as an element in tags or as a member of a JSON object."""

from __future__ import annotations

from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.tags import last_element


def named_text(reply: str, name: str) -> str:
    """The text of the last element named `name` or, if there is none, of the member `name` of the
    last JSON object.

    Raises Malformed if there is neither, or if it has no text.

    >>> (
    ...     named_text("<question>Why?</question>", "question"),
    ...     named_text('{"question": "Why?", "answer": 1}', "question"),
    ... )
    ('Why?', 'Why?')
    """
    try:
        return last_element(reply, name)
    except Malformed:
        text = last_object(reply, (name,)).get(name)
    if not isinstance(text, str) or not text.strip():
        raise Malformed(f"no {name}")
    return text.strip()
