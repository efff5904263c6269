"""Prompt templates of a method, their worked examples, and error messages with file and line.

Worked examples are data: `examples.jsonl` beside the templates, or any file of questions with
contexts and answers. A template shows the first of them, a block each:

    {% examples 3 %}
    Text: {{ context }}
    Question: {{ question }} Answer: {{ answer }}

    {% endexamples %}

The examples become part of the template's text, so they are part of its version, and readers refuse
copies of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import jinja2

from corpus_prep.read.rows import read_rows
from flows.settings.prompts import folder_of
from tasks.benchmarks.items import items_of
from tasks.benchmarks.own_file import columns_of
from tasks.prompt import Template
from tasks.readers.words import words_of
from tasks.rollouts.neutral import neutralise

EXAMPLES = "examples.jsonl"
_BLOCK = re.compile(r"\{% examples (\d+) %\}\n(.*?)\{% endexamples %\}\n?", re.DOTALL)
_VALUE = re.compile(r"\{\{ (context|question|answer) \}\}")
_JINJA = re.compile(r"\{[{%#]")


def load(folder: Path, name: str, examples: str | None = None) -> Template:
    """A template of the set in a folder, or of the set that it extends, with the worked examples of
    a file or else of that folder.

    Raises ValueError, naming the file, if the template is missing or is not valid Jinja, or if an
    example lacks a question, an answer or a context.
    """
    folder = folder_of(folder, name)
    template = Template.load(folder, name)
    path = folder / EXAMPLES
    if examples is not None:
        path = Path(examples)
    template = Template(name, _BLOCK.sub(lambda block: _shown(block, path), template.text))
    try:
        jinja2.Environment().from_string(template.text)
    except jinja2.TemplateSyntaxError as problem:  # an unknown filter raises it, too
        raise ValueError(
            f"{folder / name}.jinja, line {problem.lineno}: {problem.message}"
        ) from None
    return template


def _shown(block: re.Match[str], path: Path) -> str:
    """The first examples of a file, each in the form of a block."""
    number = int(block[1])
    return "".join(_filled(block[2], example) for example in islice(read_examples(path), number))


def _filled(form: str, example: Mapping[str, str]) -> str:
    """A block with the values of an example, escaped so that they are not read as Jinja.

    >>> _filled("Q: {{ question }}", {"question": "What is {{ x }}?"})
    'Q: What is {{ "{{" }} x }}?'
    """

    def value(name: re.Match[str]) -> str:
        text = neutralise(" ".join(example[name[1]].split()))
        return _JINJA.sub(lambda opening: f'{{{{ "{opening[0]}" }}}}', text)

    return _VALUE.sub(value, form)


def read_examples(path: Path) -> Iterator[dict[str, str]]:
    """Yield the worked examples of a file of questions: `context`, `question` and the first
    `answer` of each.

    Raises ValueError if there is no such file, and for a row that lacks one of the three.
    """
    if not path.is_file():
        raise ValueError(f"there is no file of worked examples {path}")
    columns = columns_of(path)
    for number, row in enumerate(read_rows(path), start=1):
        [item] = items_of([row], path.stem, columns)
        example = {
            "context": item["context"],
            "question": item["text"],
            "answer": next(iter(item["references"]), None),
        }
        missing = [name for name, text in example.items() if not text]
        if missing:
            raise ValueError(f"{path}, row {number}: a worked example has no {missing[0]}")
        yield example


def refuse_held_out(examples: Path, held_out: Path) -> None:
    """Raise ValueError for a worked example whose question or text is also in a file of held-out
    questions, because prompts would then show held-out material."""
    texts: set[str] = set()
    for item in items_of(read_rows(held_out), held_out.stem, columns_of(held_out)):
        for text in (item["text"], item["context"]):
            texts.add(" ".join(words_of(text or "")))
    for number, example in enumerate(read_examples(examples), start=1):
        for part in ("question", "context"):
            if " ".join(words_of(example[part])) in texts:
                raise ValueError(
                    f"{examples}, row {number}: the {part} of this worked example is held out in"
                    f" {held_out}. Take examples about other documents"
                )


@contextlib.contextmanager
def rendered(role: str, templates: Sequence[Template]) -> Iterator[None]:
    """Raise ValueError, naming the role and its templates, for a template that cannot be rendered,
    for instance because a variable has no value."""
    files = ", ".join(f"{template.name}.jinja" for template in templates)
    try:
        yield
    except jinja2.UndefinedError as problem:
        raise ValueError(
            f"the prompt of {role} ({files}): {problem.message}; yield it from the role's"
            " `variables`, or set it in `values`"
        ) from problem
    except (jinja2.TemplateError, TypeError, ArithmeticError, RecursionError) as problem:
        raise ValueError(
            f"the prompt of {role} ({files}) cannot be filled in: {problem}"
        ) from problem
