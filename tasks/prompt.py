"""A prompt: its role, its template, and the rows it is about. The reader of its reply stands beside
it in the flow.

Templates are Jinja with `StrictUndefined`. Every text put into one is neutralised first
(`tasks.rollouts.neutral`), so documents, tasks and answers cannot inject a tag, a role or a
verdict.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from tasks.readers.malformed import Malformed as Malformed
from tasks.rollouts.neutral import neutralise
from warehouse.draft import hash_bytes
from warehouse.schemas import Row as Row


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=False, trim_blocks=True
    )


@dataclass(frozen=True)
class Template:
    """A named Jinja template; its version is the hash of its text."""

    name: str
    text: str

    @classmethod
    def load(cls, folder: Path, name: str) -> Template:
        """The template `name` of a folder. Raises ValueError, which names the file, if there is
        none or it is not UTF-8."""
        path = folder / f"{name}.jinja"
        if not path.exists():
            raise ValueError(f"no prompt template {path.name} in {folder}")
        try:
            text = path.read_text(encoding="utf-8-sig")  # a byte order mark is not part of a prompt
        except UnicodeDecodeError as problem:
            raise ValueError(f"{path} is no UTF-8: {problem}") from None
        return cls(name, text)

    @property
    def version(self) -> str:
        """The first 12 hex digits of the hash of the text."""
        return hash_bytes(self.text.encode())[:12]

    def recipe_identity(self) -> str:
        """What a recipe records about a template: its name and version."""
        return f"{self.name} {self.version}"

    def render(self, ours: Row | None = None, /, **values: Any) -> str:
        """Fill in the variables. All strings are neutralised except those in `ours`, which come
        from the flow itself.

        Raises jinja2.UndefinedError for a missing variable.
        """
        return _compiled(self.text).render({**(ours or {}), **_harmless(values)})


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, dict):
        return {k: _harmless(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_harmless(v) for v in value]
    return value


@functools.cache
def _compiled(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@dataclass(frozen=True)
class Prompt:
    """What `ask` needs: `variables` takes the rows of the stage's tables and yields the ids and
    template values of each prompt. `system` is the system prompt, if there is one."""

    role: str
    templates: tuple[Template, ...]
    variables: Callable[..., Iterator[Row]]
    system: str = ""

    def recipe_identity(self) -> Row:
        """What a recipe records about a prompt; `system` only if there is one."""
        identity = {"role": self.role, "templates": self.templates, "variables": self.variables}
        if self.system:
            identity["system"] = self.system
        return identity
