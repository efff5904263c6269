"""Measure and cut texts in tokens of a model, with the light `tokenizers` library: no model is
loaded."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from tasks.readers.tags import elements, last_element


@functools.cache
def _tokenizer(model: str) -> Tokenizer:
    tokenizer = _load(model)
    # an embedding model's tokenizer truncates long texts and pads short ones
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _load(model: str) -> Tokenizer:
    folder = Path(model)
    if not folder.is_dir():
        name, _, revision = model.partition("@")
        try:
            return Tokenizer.from_pretrained(name, revision or "main")
        except Exception as problem:  # the library has no exception class of its own
            raise ValueError(
                f"tokenizer {model} is not a local folder and cannot be loaded: {problem}"
            ) from problem
    if not (folder / "tokenizer.json").exists():
        raise ValueError(f"model folder {model} has no tokenizer.json")
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def count_tokens(text: str, model: str) -> int:
    """The number of tokens of a text. `model` is a folder, or a hub name with its revision:
    owner/name@commit."""
    return len(_tokenizer(model).encode(text, add_special_tokens=False).ids)


def element_ids(ids: Sequence[int], model: str, name: str) -> tuple[list[int], list[int]]:
    """The ids of the opening tag of the last `<name>` element in sampled ids, and of its content.

    A token that holds the tag's end and the content's beginning counts as content. Raises Malformed
    if there is no such element or it is empty.
    """
    text = text_of(ids, model)
    last_element(text, name)
    element = elements(text, name)[-1]
    opened = text.index(">", element.start) + 1
    content = text[opened : text.rindex("<", opened, element.end)]
    first = opened + len(content) - len(content.lstrip())
    inside = token_at(first, ids, model)
    end = token_at(first + len(content.strip()) - 1, ids, model) + 1
    return list(ids[token_at(element.start, ids, model) : inside]), list(ids[inside:end])


def text_of(ids: Sequence[int], model: str) -> str:
    """The text of token ids, special tokens included."""
    return _tokenizer(model).decode(list(ids), skip_special_tokens=False)


def token_at(char: int, ids: Sequence[int], model: str) -> int:
    """The position in `ids` of the token that holds the character at `char` of their text."""

    def length(number: int) -> int:
        return len(text_of(ids[:number], model))

    return bisect.bisect_right(range(len(ids) + 1), char, key=length) - 1


def cut_middle(text: str, model: str, limit: int) -> str:
    """The head and tail of `text`, together at most `limit` tokens: the middle is cut out
    (LongBench, Bai et al. 2024).

    The head gets the odd token. Both stay byte for byte; a text within the limit stays whole.
    """
    offsets = _tokenizer(model).encode(text, add_special_tokens=False).offsets
    if len(offsets) <= limit:
        return text
    head = limit - limit // 2
    tail = limit // 2
    return (text[: offsets[head - 1][1]] if head else "") + (
        text[offsets[-tail][0] :] if tail else ""
    )


def cut_tokens(text: str, model: str, limit: int) -> str:
    """The longest prefix of `text` of at most `limit` tokens, byte for byte, cut between tokens."""
    offsets = _tokenizer(model).encode(text, add_special_tokens=False).offsets
    if len(offsets) <= limit:
        return text
    return text[: offsets[limit - 1][1]]
