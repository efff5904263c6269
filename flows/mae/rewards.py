"""MAE's rewards (sections 4.1 to 4.3), and the rows of `scores` that they pay. Every part lies in 0..1."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tasks.read import not_sampled
from tasks.score import scored
from warehouse.schemas import Answer, Mark, Row, Task


def well_formed(num_elements: int) -> float:
    """The format reward of a reply with so many valid elements of its role.

    >>> well_formed(1), well_formed(2), well_formed(0)
    (1.0, 0.5, 0.0)
    """
    return 1.0 if num_elements == 1 else 0.5 if num_elements else 0.0


def mean(value_N: Iterable[float | None], otherwise: float | None = 0.0) -> float | None:
    """The mean of those that there are; `otherwise` where there is none.

    >>> mean([1.0, 0.5, None]), mean([None], 0.5), mean([])
    (0.75, 0.5, 0.0)
    """
    given = [value for value in value_N if value is not None]
    return math.fsum(given) / len(given) if given else otherwise


def marks_by(marks: Iterable[Mark], column: str) -> dict[str | None, list[float | None]]:
    found = defaultdict[str | None, list[float | None]](list)
    for row in marks:
        found[row[column]].append(row["mark"])
    return found


def worth(answer: Answer, marks_of: dict[str | None, list[float | None]], unread: float | None) -> float | None:
    """V_J: the mean mark of an answer. Where a reply has none there is nothing to mark, which is 0."""
    return 0.0 if answer["answer"] is None else mean(marks_of[answer["rollout_id"]], unread)


def pay_proposer(
    tasks: list[Task],
    quality: list[Mark],
    tried: list[Answer],
    solved: list[Mark],
    *,
    pays_format: bool,
    unread: float | None,
    difficulty_from: float,
) -> Iterator[Row]:
    """R_P: quality, difficulty (1 less the mean worth of the answers; 0 where the quality is below `difficulty_from`)
    and format. A reply without a question is worth nothing."""
    quality_of, marks_of = marks_by(quality, "task_id"), marks_by(solved, "rollout_id")
    answers_of = defaultdict[str, list[Answer]](list)
    for answer in tried:
        if not not_sampled(answer):
            answers_of[answer["task_id"]].append(answer)
    for task in tasks:
        form = (task["format"] or {}).get("total", 0.0)
        if task["text"] is None:
            yield scored(task, 0.0, {"format": form})
            continue
        good = mean(quality_of[task["task_id"]], unread)
        right = mean([worth(answer, marks_of, unread) for answer in answers_of[task["task_id"]]], unread)
        if good is None or right is None:
            yield scored(task, None, {"format": form}, unscorable="no readable mark")
            continue
        hard = 1 - right if good >= difficulty_from - 1e-9 else 0.0
        parts = {"quality": good, "difficulty": hard, "format": form}
        yield scored(task, mean([good, hard, form if pays_format else None]), parts, score=right)


def pay_solver(answers: list[Answer], marks: list[Mark], *, pays_format: bool, unread: float | None) -> Iterator[Row]:
    """R_S: the Judge's mark and format."""
    marks_of = marks_by(marks, "rollout_id")
    for answer in answers:
        form, mark = (answer["format"] or {}).get("total", 0.0), worth(answer, marks_of, unread)
        why = "no readable mark" if mark is None else None
        parts = {"format": form, **({} if mark is None else {"mark": mark})}
        yield scored(answer, mean([mark, form if pays_format else None]), parts, score=mark, unscorable=why)


def pay_judge(marks: list[Mark], *, pays_format: bool) -> Iterator[Row]:
    """R_J: format alone. Nobody says whether a mark is right."""
    for row in marks:
        form = (row["format"] or {}).get("total", 0.0)
        yield scored(row, form * pays_format, {"format": form})
