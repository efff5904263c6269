"""Answers compared by their words with all answers that a task accepts.

This module imports little, because every process that compares answers has to load it.
"""

from __future__ import annotations

from tasks.readers.words import overlap, words_of
from warehouse.schemas import Row, Task


def accepted(task: Row | Task) -> list[str]:
    """All answers that a task accepts as right."""
    return task.get("accepted") or [task["reference"] or ""]


def with_reference(task: Row, reference: str | None) -> Row:
    """The task with `reference` as its only right answer.

    >>> accepted(with_reference({"reference": "Rhine", "accepted": ["Rhine", "Rhein"]}, "Po"))
    ['Po']
    """
    return {**task, "reference": reference, "accepted": None}


def equal(task: Row | Task, answer: str) -> bool:
    """Whether an answer has exactly the words of an accepted answer: `compare` of the stage
    `match`.

    >>> (
    ...     equal({"reference": "The Rhine"}, "Rhine."),
    ...     equal({"reference": "Rhine", "accepted": ["Rhein"]}, "Rhine"),
    ... )
    (True, False)
    """
    return any(words_of(answer) == words_of(a) for a in accepted(task))


def exact(task: Task, answer: str | None) -> float:
    """1 for an answer with exactly the words of an accepted answer, else 0."""
    return float(answer is not None and equal(task, answer))


def best_overlap(task: Task, answer: str | None) -> float:
    """Word F1 with the nearest accepted answer."""
    if answer is None:
        return 0.0
    return max(overlap(a, answer) for a in accepted(task))
