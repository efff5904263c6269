"""Checks of tasks by rule, beside those by a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tasks.stage import Rows, stage
from warehouse.schemas import GATES, Task
from warehouse.store import Table


@stage(GATES)
def check(tasks: Table, *, rules: Mapping[str, Callable[[str], bool]]) -> Rows:
    """Yield one row for every readable task and rule: does the rule let the task's text pass?"""
    for task in tasks.rows(Task):
        for gate, rule in rules.items():
            if task["text"] is not None:
                yield {"task_id": task["task_id"], "gate": gate, "kind": "rule", "passed": rule(task["text"])}


def asks_nothing_twice(text: str) -> bool:
    """No item of a list stands in it twice.

    >>> asks_nothing_twice("Name the food, river and metal of X."), asks_nothing_twice("the food , metal and food of X")
    (True, False)
    """
    for listing in re.findall(r"\w+(?:\s*,\s*\w+)*\s*,?\s+and\s+\w+", text):
        items = re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", listing.lower())
        if len(set(items)) < len(items):
            return False
    return True
