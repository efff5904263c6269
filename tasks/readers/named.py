"""A text under a name, whichever way a model writes it."""

from __future__ import annotations

from tasks.readers.malformed import Malformed
from tasks.readers.objects import last_object
from tasks.readers.tags import last_element


def named_text(reply: str, name: str) -> str:
    """The text of the last element of that name or, where there is none, of the last JSON object's member.

    Raises Malformed for neither, and for no text.

    >>> named_text("<question>Why?</question>", "question"), named_text('{"question": "Why?", "answer": 1}', "question")
    ('Why?', 'Why?')
    """
    try:
        return last_element(reply, name)
    except Malformed:
        text = last_object(reply, (name,)).get(name)
    if not isinstance(text, str) or not text.strip():
        raise Malformed(f"no {name}")
    return text.strip()
