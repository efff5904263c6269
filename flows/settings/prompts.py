"""Prompt sets: folders of templates, and the readers of the replies to them.

A set is a folder in `prompts` beside a method's configuration, or any other folder. Its `set.toml`
may say `readers = "lines"`: the templates are worked examples that a small or base model continues,
and a reply is a line. With `readers = "words"`, replies come from a model that separates all words
and punctuation by blanks and writes no line breaks, like the built-in models. Without `readers`,
replies are read in the format that the method's English prompts ask for.
`extends = "english"` takes the templates that a set lacks from the set of that name beside it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows.settings.errors import error_lines, read_toml

SET = "set.toml"
PAPER = "paper"  # the set that makes the same requests as the method's paper, and no others
# the name of a folder in a method's `prompts`, or a path, relative to the method's folder
PromptSet = Annotated[str, Field(pattern=r"^[\w-]+$|/")]


class SetSettings(BaseModel):
    """The contents of `set.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    readers: Literal["standard", "lines", "words"] = "standard"
    extends: str | None = Field(
        default=None, pattern=r"^[\w-]+$", description="the set beside it that has other templates"
    )


def prompt_folder(method: Path, prompts: str) -> Path:
    """The folder of a prompt set, for a method in the folder `method`.

    >>> prompt_folder(Path("mine"), "english"), prompt_folder(Path("mine"), "/home/me/french")
    (PosixPath('mine/prompts/english'), PosixPath('/home/me/french'))
    """
    if os.sep in prompts:
        return method / prompts
    return method / "prompts" / prompts


def is_read_by_lines(folder: Path) -> bool:
    """Whether replies to the prompts in a folder are read as lines.

    Raises ValueError for an invalid `set.toml`.
    """
    return read_set(folder).readers == "lines"


def is_read_by_words(folder: Path) -> bool:
    """Whether the words of replies to the prompts in a folder stand alone, without line breaks.

    Raises ValueError for an invalid `set.toml`.
    """
    return read_set(folder).readers == "words"


def folder_of(folder: Path, name: str) -> Path:
    """The folder that holds a template of the set in `folder`: this one, or that of the set that it
    extends.

    Raises ValueError for an invalid `set.toml`.
    """
    if (folder / f"{name}.jinja").exists():
        return folder
    other = read_set(folder).extends
    if other is None:
        return folder
    return folder.parent / other


def read_set(folder: Path) -> SetSettings:
    """The contents of the `set.toml` in a folder of prompts. Raises ValueError if it is invalid."""
    path = folder / SET
    if not path.exists():
        return SetSettings()
    try:
        return SetSettings.model_validate(read_toml(path), strict=True)
    except ValidationError as problem:
        raise ValueError(f"{path}: {'; '.join(error_lines(SetSettings, problem))}") from None
