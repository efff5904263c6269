"""Neutralise text from outside, which must not look like a tag, chat markup or a verdict."""

import re
from collections.abc import Iterable
from typing import Any

TAGS = (
    "think(?:ing)?|search|information|task|question|answer|score|rubrics?|criterion|tool_calls?|tool_response|tools"
    "|function_calls?|functions?|function_results?"
)
# Blanks are matched possessively, so that a run of 100,000 is read only once, not once per blank.
MARKUP = re.compile(
    rf"<(?:\s*+(?:/\s*+)?(?:{TAGS})\b[^<>]*+>?"  # our tags, with attributes, even unclosed
    # <|im_start|> and the like, with a plain or a full-width bar
    r"|[|｜](?:[^<>]{0,64}[|｜]>|[^<>\s|｜]{0,64}>?)"
    r"|\s*+(?:/\s*+)?(?:s>|(?:start|end)_of_(?:turn|text|image)\s*+>|(?:bos|eos|pad|unk)\s*+>)"
    r"|<\s*+(?:/\s*+)?SYS\s*+>>)"
    r"|\[\s*+(?:/\s*+)?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\s*+\]"
    # [[YES]], also with the backslashes of Markdown
    r"|\\?\[\\?\[\s*+[\w.:+-](?:[\w .:+-]|\\_){0,23}\s*+\\?\]\\?\]",
    re.IGNORECASE,
)
LOOK_ALIKES = str.maketrans({"<": "‹", ">": "›", "[": "⟦", "]": "⟧"})


def neutralise(text: str, special_tokens: Iterable[str] = ()) -> str:
    """Replace the brackets of tags, chat markup, verdicts and the tokenizer's special tokens with
    look-alikes.

    Everything else stays byte for byte, even special tokens without brackets: they are ordinary
    words.

    >>> neutralise("a < b and <b>c</b>, </answer> [[YES]]")
    'a < b and <b>c</b>, ‹/answer› ⟦⟦YES⟧⟧'
    """
    return without_special(
        MARKUP.sub(lambda match: match[0].translate(LOOK_ALIKES), text), special_tokens
    )


def without_special(text: str, special_tokens: Iterable[str]) -> str:
    """Replace only the brackets of special tokens.

    >>> without_special("a <file_sep> b </answer>", ["<file_sep>"])
    'a ‹file_sep› b </answer>'
    """
    for token in special_tokens:
        if token in text:
            text = text.replace(token, token.translate(LOOK_ALIKES))
    return text


def special_tokens_of(tokenizer: Any) -> tuple[str, ...]:
    """All special tokens of a tokenizer, longest first: strings that it reads as one id wherever
    they occur.

    In transformers 5 `all_special_tokens` has only those with a role (end, padding, ...): 3 of
    SmolLM2's 17.
    """
    added = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
    return tuple(
        sorted({*added, *tokenizer.all_special_tokens}, key=lambda token: (-len(token), token))
    )
