"""Check tasks by rule, in addition to the checks by a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from tasks.stage import Rows, stage
from warehouse.schemas import GATES, Task
from warehouse.store import Table

_TOKEN = re.compile(r"\w+|,|[^\w\s,]")


@stage(GATES)
def check(tasks: Table, *, rules: Mapping[str, Callable[[str], bool]]) -> Rows:
    """Yield one row for every readable task and rule: whether the task's text passes."""
    for task in tasks.rows(Task):
        if task["text"] is None:
            continue
        for gate, rule in rules.items():
            yield {
                "task_id": task["task_id"],
                "gate": gate,
                "kind": "rule",
                "passed": rule(task["text"]),
            }


def asks_nothing_twice(text: str) -> bool:
    """Whether no list in the text names an item twice.

    >>> asks_nothing_twice("Name the food, river and metal of X.")
    True
    >>> asks_nothing_twice("the food , metal and food of X")
    False
    """
    return all(len(set(items)) == len(items) for items in _listings(text))


def _listings(text: str) -> Iterator[list[str]]:
    """The lists in a text: words joined by commas and closed by "and".

    It takes one pass, however long the words are.

    >>> list(_listings("Name the food, river, and metal of X or Y and Z."))
    [['food', 'river', 'metal'], ['y', 'z']]
    """
    items: list[str] = []
    before = ""
    for token in _TOKEN.findall(text):
        is_word = token[0].isalnum() or token[0] == "_"
        if is_word and before == "and":
            yield [*items, token.lower()]
            items = []
        elif items and token in ("and", ","):
            before = token
            continue
        elif is_word and before == ",":
            items.append(token.lower())
        else:
            items = []
            if is_word:
                items.append(token.lower())
        before = ""
