"""R_rule: whether an answer contains the reference, by a rule for each task type.

A rule that cannot decide raises Malformed. Departure: the answer must contain the reference as
whole words, since "12" is a substring of "1200" and "no" of "I do not know".
"""

from __future__ import annotations

import random
from functools import partial

from tasks.prompt import Row
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import same_number
from tasks.readers.words import holds
from tasks.scorers.accepted import accepted

TOLERANCE = 0.0015  # relative to the reference


def covers(task: Row, answer: str) -> bool:
    """Cover exact match, by a rule for the task's type; serves as `compare` in the stage `match`.

    Raises Malformed for an answer that has no letter, or no number, where the type needs one.

    >>> covers({"task_type": "general_qa", "reference": "12"}, "it was 1200 men")
    False
    """
    if task["task_type"] == "multiple_choice":
        letter = letter_of(answer, task.get("options"))
        if letter is None:
            raise Malformed("no letter A to D")
        return letter == task["reference"]
    rule = holds
    if task["task_type"] == "finance_math":
        rule = partial(same_number, tolerance=TOLERANCE)
    return any(rule(reference, answer) for reference in accepted(task))


def covers_some(task: Row, answer: str, *, misses: float) -> bool:
    """A rule that rejects right answers to a share of the questions.

    It imitates a rule in a world where answers are often worded differently from the reference. A
    question's text determines whether it is one of these questions.

    >>> task = {"text": "Who?", "task_type": "general_qa", "reference": "Ann"}
    >>> [covers_some(task, "Ann", misses=share) for share in (0.0, 1.0)]
    [True, False]
    """
    if not covers(task, answer):
        return False
    return random.Random(f"missed {task['text']}").random() >= misses


def is_readable(task: Row, answer: str) -> bool:
    """A control: every readable answer counts as right."""
    return True
