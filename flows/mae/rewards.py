"""MAE's rewards (sections 4.1 to 4.3), and the rows of `rewards` made from them.

Every part is in 0..1, and a reward is the mean of its parts. A function named `*_reward` computes
one part; one named `*_rewards` yields a row for each reply of a role.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tasks.prompt import Malformed
from tasks.read import why_not_sampled
from tasks.readers.tags import elements
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Mark, PromptRow, Rollout, Row, Task

NO_MARK = "no readable mark"
ROUNDING = 1e-9  # rounding may put a mean of marks this far below a bound that it should equal


# ---- format, for all roles ----


def format_reward(num_elements: int) -> float:
    """The format reward of a reply with this number of valid elements of its role.

    >>> format_reward(1), format_reward(2), format_reward(0)
    (1.0, 0.5, 0.0)
    """
    if num_elements == 0:
        return 0.0
    if num_elements == 1:
        return 1.0
    return 0.5


def measure_format(
    rollout: Rollout, prompt: PromptRow, *, name: str, read: Callable[[str], Any]
) -> Row:
    """The format reward of a reply that should have one valid `<name>` element.

    An element is valid if `read` can parse it: `<score>excellent</score>` contains no mark and
    earns nothing. Neither does a reply whose last element is invalid, since that is the one that
    counts.
    """
    reply = rollout["reply"] or ""
    if not _can_be_read(reply, read):
        return {"format": {"total": 0.0}}
    spans = (reply[element.start : element.end] for element in elements(reply, name))
    num_valid = sum(_can_be_read(span, read) for span in spans)
    return {"format": {"total": format_reward(num_valid)}}


def measure_line(rollout: Rollout, prompt: PromptRow, *, read: Callable[[str], Any]) -> Row:
    """The format reward of a reply that should be a single line: 1 if it can be read, else 0."""
    return {"format": {"total": float(_can_be_read(rollout["reply"] or "", read))}}


def _can_be_read(text: str, read: Callable[[str], Any]) -> bool:
    try:
        read(text)
    except Malformed:
        return False
    return True


def _format_of(row: Task | Answer | Mark) -> float:
    """The format reward that was measured when a reply was read; 0 if there was no reply."""
    return (row["format"] or {}).get("total", 0.0)


# ---- the Solver ----


def judge_score(
    answers: Iterable[Answer], marks: list[Mark], unread: float | None
) -> dict[str, float | None]:
    """V_J: the mean mark of each answer, by rollout id.

    A reply without an answer gets 0. An answer without a readable mark gets `unread`.
    """
    marks_of = rows_by("rollout_id", marks)
    score_of: dict[str, float | None] = {}
    for answer in answers:
        rollout_id = answer["rollout_id"]
        if answer["answer"] is None:
            score_of[rollout_id] = 0.0
        else:
            score_of[rollout_id] = mean_of((row["mark"] for row in marks_of[rollout_id]), unread)
    return score_of


def solver_rewards(
    answers: list[Answer], marks: list[Mark], *, pays_format: bool, unread: float | None
) -> Iterator[Row]:
    """R_S: the Judge's mark and the format reward. An answer without a mark is unscorable."""
    mark_of = judge_score(answers, marks, unread)
    for answer in answers:
        form = _format_of(answer)
        mark = mark_of[answer["rollout_id"]]
        if mark is None:
            yield scored(answer, None, {"format": form}, unscorable=NO_MARK)
            continue
        parts = [mark]
        if pays_format:
            parts.append(form)
        yield scored(answer, mean_of(parts), {"format": form, "mark": mark}, score=mark)


# ---- the Proposer ----


def difficulty_reward(quality: float, score: float, difficulty_from: float) -> float:
    """1 minus the mean score of the answers; 0 if the question's quality is below a bound.

    >>> difficulty_reward(0.8, 0.25, 0.7), difficulty_reward(0.6, 0.25, 0.7)
    (0.75, 0.0)
    """
    if quality < difficulty_from - ROUNDING:
        return 0.0
    return 1 - score


def proposer_rewards(
    tasks: list[Task],
    quality: list[Mark],
    answers: list[Answer],
    marks: list[Mark],
    *,
    pays_format: bool,
    unread: float | None,
    difficulty_from: float,
) -> Iterator[Row]:
    """R_P: quality, difficulty and format of every question.

    `quality` holds the marks of the questions, `marks` those of the answers. A reply without a
    question earns nothing. A question that lacks a readable mark of either kind is unscorable.
    """
    sampled = [answer for answer in answers if why_not_sampled(answer) is None]
    quality_of = rows_by("task_id", quality)
    answers_of = rows_by("task_id", sampled)
    score_of = judge_score(sampled, marks, unread)
    for task in tasks:
        task_id = task["task_id"]
        form = _format_of(task)
        if task["text"] is None:
            yield scored(task, 0.0, {"format": form})
            continue
        good = mean_of((mark["mark"] for mark in quality_of[task_id]), unread)
        right = mean_of((score_of[answer["rollout_id"]] for answer in answers_of[task_id]), unread)
        if good is None or right is None:
            # only its quality decides whether a question is added to D (line 12)
            known = {"format": form} if good is None else {"format": form, "quality": good}
            yield scored(task, None, known, unscorable=NO_MARK)
            continue
        hard = difficulty_reward(good, right, difficulty_from)
        parts = [good, hard]
        if pays_format:
            parts.append(form)
        components = {"quality": good, "difficulty": hard, "format": form}
        yield scored(task, mean_of(parts), components, score=right)


# ---- the Judge ----


def judge_rewards(marks: list[Mark], *, pays_format: bool) -> Iterator[Row]:
    """R_J: format alone, since it is unknown whether a mark is right; 0 without `pays_format`."""
    for mark in marks:
        form = _format_of(mark)
        yield scored(mark, form * pays_format, {"format": form})
