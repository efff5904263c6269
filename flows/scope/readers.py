"""What SCOPE's replies mean: which tags hold a task, a verdict, a rubric. How tags are read is in `tasks.readers`."""

from __future__ import annotations

import re

from tasks.prompt import Row
from tasks.readers import verdicts
from tasks.readers.malformed import Malformed
from tasks.readers.tags import Element, elements, last_element

PRIORITIES = ("critical", "important", "bonus")  # from the highest to the lowest
_PRIORITY = re.compile(r"priority\s*+=\s*+[\"'“”‘’]?\s*+(\w+)\s*+(?:[\"'“”‘’\s]|$)", re.IGNORECASE)
_QUESTION = re.compile(r"</?question>", re.IGNORECASE)


def read_task(reply: str) -> str:
    """The task: all that its element says, without the tags of a `<question>` within it.

    >>> read_task("<think>x</think><task>In 400 words: <question> Why? </question></task>")
    'In 400 words: Why?'
    """
    text = " ".join(part.strip() for part in _QUESTION.split(last_element(reply, "task")) if part.strip())
    if not text:
        raise Malformed("empty question element")
    return text


def read_verdict(reply: str) -> int:
    """1 or 0; the last score that decides wins, and what is thought does not count.

    >>> read_verdict("<think><score>0</score></think> <score> 1 </score>")
    1
    """
    return verdicts.marked(reply, "score")


def passes(reply: str) -> bool:
    """Whether a gate's verdict is 1."""
    return read_verdict(reply) == 1


def read_answer(reply: str) -> str:
    """What the last answer element says."""
    return last_element(reply, "answer")


def read_rubric(reply: str, min_criteria: int, max_criteria: int, weights: dict[str, float]) -> list[Row]:
    """The criteria in order: criterion, priority, weight, position. Repeated criteria count once; a criterion without
    a priority that we know has the lowest.

    Raises Malformed below `min_criteria` or above `max_criteria`.
    """
    criteria = {_criterion(element): _priority(element) for element in _criteria(reply) if _criterion(element)}
    if not criteria:
        raise Malformed("no criterion")
    if not min_criteria <= len(criteria) <= max_criteria:
        raise Malformed(f"{'fewer' if len(criteria) < min_criteria else 'more'} criteria than allowed")
    return [
        {"position": i, "criterion": text, "priority": priority, "weight": weights[priority]}
        for i, (text, priority) in enumerate(criteria.items())
    ]


def _criteria(reply: str) -> list[Element]:
    """The elements of the last rubric, or those that no rubric encloses."""
    if "<rubrics" not in reply.lower():
        return elements(reply, "rubric")
    return elements(last_element(reply, "rubrics"), "rubric")


def _criterion(element: Element) -> str:
    within = elements(element.text, "criterion")
    return " ".join((within[-1].text if within else element.text).split())


def _priority(element: Element) -> str:
    named = _PRIORITY.search(element.attributes)
    return named[1].lower() if named and named[1].lower() in PRIORITIES else PRIORITIES[-1]
