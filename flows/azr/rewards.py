"""Absolute Zero's rewards (arXiv 2505.03335), and the rows of `rewards` made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from flows.azr.programs import TOO_LONG
from flows.blocks.questions import correctness
from tasks.processes.sandbox import LOST
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Row, Task

NO_ANSWER = "no attempt at it could be judged"


def learnability(success_G: Sequence[float]) -> float:
    """Eq. 4: 1 minus the mean success; 0 if all attempts succeed or all fail.

    >>> learnability([1, 0, 0, 0]), learnability([0, 0]), learnability([1, 1])
    (0.75, 0.0, 0.0)
    """
    mean = fmean(success_G)
    if mean in (0.0, 1.0):
        return 0.0
    return 1.0 - mean


def with_penalties(value: float, is_formed: bool, *, wrong: float, malformed: float) -> float:
    """Eq. 6: the role's reward, or a penalty if it is 0, or a larger one for a format error.

    >>> with_penalties(0.75, True, wrong=-0.5, malformed=-1.0)
    0.75
    >>> with_penalties(0.0, True, wrong=-0.5, malformed=-1.0)
    -0.5
    >>> with_penalties(0.75, False, wrong=-0.5, malformed=-1.0)
    -1.0
    """
    if not is_formed:
        return malformed
    if value == 0:
        return wrong
    return value


def is_well_formed(row: Task | Answer) -> bool:
    """Whether a reply had thoughts and answer in their tags; False if there was no reply."""
    return bool((row["format"] or {}).get("total"))


def proposer_rewards(
    tasks: list[Task],
    answers: list[Answer],
    matches: list[Match],
    *,
    unlearnable: float,
    malformed: float,
) -> Iterator[Row]:
    """Eq. 4 and 6 for every proposal. A task whose program could not be used is a format error.

    A task that is too long to be asked counts as never solved, as in the released code. A task
    whose process was lost is unscorable.
    """
    correct = correctness(answers, matches)
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        form = float(is_well_formed(task))
        if task["malformed"] == LOST:
            yield scored(task, None, {"format": form}, unscorable=LOST)
            continue
        if task["malformed"] == TOO_LONG:
            reward = with_penalties(0.0, bool(form), wrong=unlearnable, malformed=malformed)
            yield scored(task, reward, {"format": form, "valid": 1.0, "learnability": 0.0})
            continue
        if task["text"] is None:
            yield scored(task, malformed, {"format": form, "valid": 0.0})
            continue
        judged = [correct[answer["rollout_id"]] for answer in answers_of[task["task_id"]]]
        success_G = [float(is_right) for is_right in judged if is_right is not None]
        if not success_G:
            yield scored(task, None, {"format": form, "valid": 1.0}, unscorable=NO_ANSWER)
            continue
        hard = learnability(success_G)
        reward = with_penalties(hard, bool(form), wrong=unlearnable, malformed=malformed)
        parts = {"format": form, "valid": 1.0, "learnability": hard}
        yield scored(task, reward, parts, score=fmean(success_G))


def solver_rewards(
    answers: list[Answer], matches: list[Match], *, wrong: float, malformed: float
) -> Iterator[Row]:
    """Eq. 5 and 6: 1 for a right answer. An answer that could not be judged is unscorable."""
    correct = correctness(answers, matches)
    reason = {row["rollout_id"]: row["reason"] for row in matches}
    for answer in answers:
        form = float(is_well_formed(answer))
        if answer["answer"] is None:
            yield scored(answer, malformed, {"format": form, "right": 0.0}, score=0.0)
            continue
        is_right = correct[answer["rollout_id"]]
        if is_right is None:
            why = reason[answer["rollout_id"]]
            yield scored(answer, None, {"format": form}, unscorable=why)
            continue
        right = float(is_right)
        reward = with_penalties(right, bool(form), wrong=wrong, malformed=malformed)
        yield scored(answer, reward, {"format": form, "right": right}, score=right)
