"""Prompt templates of a method, and errors in them, by file and line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2

from flows.settings.prompts import folder_of
from tasks.prompt import Template


def load(folder: Path, name: str) -> Template:
    """A template of the set in a folder, or of the set that it extends.

    Raises ValueError, naming its file, if it is missing or is no Jinja.
    """
    folder = folder_of(folder, name)
    template = Template.load(folder, name)
    try:
        jinja2.Environment().parse(template.text)
    except jinja2.TemplateSyntaxError as problem:
        raise ValueError(
            f"{folder / name}.jinja, line {problem.lineno}: {problem.message}"
        ) from None
    return template


@contextlib.contextmanager
def rendered(role: str, templates: Sequence[Template]) -> Iterator[None]:
    """Raise ValueError, naming the role and its templates, for a variable that has no value."""
    try:
        yield
    except jinja2.UndefinedError as problem:
        files = ", ".join(f"{template.name}.jinja" for template in templates)
        raise ValueError(
            f"the prompt of {role} ({files}): {problem.message}; give it in what `about` yields or"
            " in `values`"
        ) from problem
