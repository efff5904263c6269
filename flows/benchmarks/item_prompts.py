"""The prompts of benchmarks, made with the templates beside this file: what a policy is asked about
an item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flows.benchmarks import FOLDER
from flows.runtime.templates import load
from flows.settings.prompts import PAPER, prompt_folder
from tasks.prompt import Template
from tasks.readers.letters import lettered
from tasks.rollouts.tokens import count_tokens, cut_middle
from warehouse.schemas import Item, ItemContext, Row

EMPTY = {"search_example": "", "max_searches": 0}  # template values that `pose` leaves to the role
MARKUP = 64  # tokens of a chat template around one message


def benchmark_template(prompts: str, name: str, trained_with: str = PAPER) -> Template:
    """A template of a prompt set.

    A name such as `mae/solve` means a method's own prompt, in the set that its policies are
    `trained_with`, which is a name or the path of a folder.
    Raises ValueError, naming the file, if there is no such template, or if a method's own template
    is not valid Jinja.
    """
    method, _, prompt = name.rpartition("/")
    if method:
        return load(prompt_folder(FOLDER.parent / method, trained_with), prompt)
    return Template.load(FOLDER / "prompts" / prompts, name)


def pose(
    items: list[Item], contexts: Iterable[ItemContext] = (), *, template: Template, model: str
) -> Iterator[Row]:
    """Yield the question of every item with its options and its context, but without its reference.

    `contexts` says which items are left out, and how many tokens of `model` each context keeps; its
    middle is cut out.
    """
    context_of = {row["task_id"]: row for row in contexts}
    for item in items:
        context = item["context"] or ""
        fitted = context_of.get(item["task_id"])
        if fitted is not None:
            if fitted["left_out"] is not None:
                continue
            if fitted["kept_tokens"] < fitted["num_tokens"]:
                context = cut_middle(context, model, fitted["kept_tokens"])
        yield {
            "task_id": item["task_id"],
            "task_type": item["kind"],
            "template": template.name,
            **shown(item, context),
        }


def tokens_around(item: Item, *, template: Template, model: str) -> int:
    """The number of tokens of `model` in an item's prompt without its context, including `MARKUP`
    for the chat template."""
    return count_tokens(template.render(EMPTY, **shown(item, "")), model) + MARKUP


def shown(item: Item, context: str) -> Row:
    """The parts of an item that a prompt may show. `task` is context and question in one text, for
    prompts of methods whose tasks have no separate context."""
    task = item["text"]
    if context:
        task = f"{context}\n\n{task}"
    return {
        "question": item["text"],
        "options": lettered(item["options"]),
        "context": context,
        "task": task,
    }
