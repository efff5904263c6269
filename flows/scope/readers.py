"""What SCOPE's replies mean. A reader looks only past the last think block, takes the last pair of tags, and raises
`Malformed` with the reason when there is none."""

from __future__ import annotations

import re

from tasks.prompt import Malformed, Row

PRIORITIES = ("critical", "important", "bonus")
RUBRIC = re.compile(r'<rubric\s+priority\s*=\s*"([^"]*)"\s*>((?:(?!<rubric\b).)*?)</rubric>', re.DOTALL)
SCORE = re.compile(r"<score>(.*?)</score>", re.DOTALL)


def spoken(reply: str) -> str:
    """The part of a reply after its last think block. An unclosed one hides all that follows it."""
    after = reply.rpartition("</think>")[2]
    return after.partition("<think>")[0]


def last_pair(reply: str, tag: str) -> str:
    """Text of the last `<tag>...</tag>` pair, stripped; raises Malformed if there is none or it is empty."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", spoken(reply), re.DOTALL)
    if not found:
        raise Malformed(f"no {tag} element")
    inner = found[-1].rpartition(f"<{tag}>")[2].strip()
    if not inner:
        raise Malformed(f"empty {tag} element")
    return inner


def read_task(reply: str) -> str:
    """The task; a non-empty `<question>` child is taken in place of the element's whole text.

    >>> read_task("<think>x</think><task><question> Why? </question></task>")
    'Why?'
    """
    text = last_pair(reply, "task")
    return last_pair(text, "question") if "<question>" in text else text


def read_verdict(reply: str) -> int:
    """1 or 0; the last score wins, and what is thought does not count.

    >>> read_verdict("<think><score>0</score></think> <score> 1 </score>")
    1
    """
    found = SCORE.findall(spoken(reply))
    if not found:
        raise Malformed("no score element")
    verdict = found[-1].strip()
    if verdict not in ("0", "1"):
        raise Malformed("score is neither 0 nor 1")
    return int(verdict)


def read_rubric(reply: str, min_criteria: int, max_criteria: int, weights: dict[str, float]) -> list[Row]:
    """The criteria in order: criterion, priority, weight, position. Repeated criteria count once.

    Raises Malformed below `min_criteria` or above `max_criteria`, or for an unknown priority.
    """
    block = last_pair(reply, "rubrics")
    criteria = {
        " ".join(text.split()): priority.strip().lower() for priority, text in RUBRIC.findall(block) if text.strip()
    }
    if not min_criteria <= len(criteria) <= max_criteria:
        raise Malformed(f"{'fewer' if len(criteria) < min_criteria else 'more'} criteria than allowed")
    if unknown := set(criteria.values()) - set(PRIORITIES):
        raise Malformed(f"unknown priority {sorted(unknown)[0]!r}")
    return [
        {"position": i, "criterion": text, "priority": priority, "weight": weights[priority]}
        for i, (text, priority) in enumerate(criteria.items())
    ]
