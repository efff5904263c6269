"""R_rule: does an extracted answer hold the reference? A rule for each task type; what it cannot compare is Malformed.

Departure: the reference must stand in the answer as whole words. As a bare substring "12" would be found in "1200" and
"no" in "I do not know".
"""

from __future__ import annotations

from functools import partial

from flows.micro.worlds.clusters import same_answer
from tasks.accepted import accepted
from tasks.prompt import Row
from tasks.readers.letters import letter_of
from tasks.readers.malformed import Malformed
from tasks.readers.numbers import same_number
from tasks.readers.words import holds

TOLERANCE = 0.0015  # relative, of the reference


def covers(task: Row, answer: str) -> bool:
    """Cover exact match by the task's type: `compare` of the stage `match`.

    >>> covers({"task_type": "general_qa", "reference": "12"}, "it was 1200 men")
    False
    """
    if task["task_type"] == "multiple_choice":
        letter = letter_of(answer, task.get("options"))
        if letter is None:
            raise Malformed("no letter A to D")
        return letter == task["reference"]
    rule = partial(same_number, tolerance=TOLERANCE) if task["task_type"] == "finance_math" else holds
    return any(rule(reference, answer) for reference in accepted(task))


def is_readable(task: Row, answer: str) -> bool:
    """A control: `answer` was read, so it is held to be right."""
    return True


def truly_covers(task: Row, answer: str) -> bool:
    """The truth of the micro-world: the true value, letter or number, in digits or in words."""
    return same_answer(answer.strip(), task["reference"])
