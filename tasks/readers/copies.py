"""A prompt's own words, which small models copy instead of writing a reply."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.readers.words import words_of

COPIED = "a copy of the prompt's own words"
LONGEST_CHANCE = 6  # this many equal words in a row are no coincidence
SHORTEST_EXAMPLE = 2  # words of an example; a single word, number or letter may be right
_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
# what a prompt shows as the form of a reply: values in JSON, contents of elements and boxes, items
# of lists, and the questions of worked examples
_EXAMPLES = (
    re.compile(r'":\s*"((?:[^"\\]|\\.)*)"'),
    re.compile(r"<(?P<tag>\w+)[^<>]*>([^<>]*)</(?P=tag)>"),
    re.compile(r"\\boxed\{([^{}]*)\}"),
    re.compile(r"^- (.+)$", re.MULTILINE),
    re.compile(r"^(?:Question|Task): (.+?)(?= Answer:|$)", re.MULTILINE),
)


@dataclass(frozen=True)
class Instructions:
    """The texts of a role's templates, without what is filled in."""

    texts: tuple[str, ...]

    @classmethod
    def of(cls, sources: Iterable[str]) -> Instructions:
        """The instructions in the sources of Jinja templates."""
        return cls(tuple(_JINJA.sub("\n", source) for source in sources))

    def recipe_identity(self) -> list[str]:
        """What a recipe records about the instructions: their texts."""
        return list(self.texts)

    def holds(self, text: str) -> bool:
        """Whether a text is one of the prompt's examples or was copied from its instructions.

        >>> prompt = Instructions.of(['{{ text }} End with {"answer": "the Old Toll Bridge"}.'])
        >>> prompt.holds("The old toll bridge"), prompt.holds("bridge"), prompt.holds("Rome")
        (True, False, False)
        """
        words = words_of(text)
        if len(words) < SHORTEST_EXAMPLE:
            return False
        reply = " ".join(words)
        if reply in _examples(self.texts):
            return True
        if len(words) < LONGEST_CHANCE:
            return False
        return any(f" {reply} " in f" {own} " for own in _own_words(self.texts))


@functools.lru_cache(maxsize=64)
def _examples(texts: tuple[str, ...]) -> frozenset[str]:
    examples = (match[-1] for text in texts for form in _EXAMPLES for match in _matches(form, text))
    return frozenset(" ".join(words_of(example)) for example in examples)


def _matches(form: re.Pattern[str], text: str) -> Iterable[tuple[str, ...]]:
    return (match.groups() for match in form.finditer(text))


@functools.lru_cache(maxsize=64)
def _own_words(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(" ".join(words_of(text)) for text in texts)
