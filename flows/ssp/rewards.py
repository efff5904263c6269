"""Search Self-Play's rewards (arXiv 2510.18821), and the rows of `rewards` made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from flows.blocks.questions import correctness
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Row, Selection, Task

NO_ANSWER = "no answer to it could be compared"
NO_CHECK = "its check could not be made"


def proposer_reward(is_right_G: Sequence[float]) -> float:
    """1 minus the Solver's mean success: the Proposer wins what the Solver loses.

    >>> proposer_reward([1, 0, 0, 0])
    0.75
    """
    return 1.0 - fmean(is_right_G)


def proposer_rewards(
    tasks: list[Task],
    selections: list[Selection],
    checks: list[Answer],
    check_matches: list[Match],
    answers: list[Answer],
    matches: list[Match],
    *,
    invalid: float,
) -> Iterator[Row]:
    """Yield a row for every question: `proposer_reward` if it is valid, else `invalid`.

    A question is unscorable if an engine or a comparison failed on its check or on all of its
    answers.
    """
    kept = {row["task_id"] for row in selections if row["kept"]}
    passed = correctness(checks, check_matches)
    lost = {row["task_id"] for row in checks if passed[row["rollout_id"]] is None}
    correct = correctness(answers, matches)
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        if task["task_id"] in lost:
            yield scored(task, None, {}, unscorable=NO_CHECK)
            continue
        if task["task_id"] not in kept:
            yield scored(task, invalid, {"valid": 0.0})
            continue
        judged = [correct[answer["rollout_id"]] for answer in answers_of[task["task_id"]]]
        is_right_G = [float(is_right) for is_right in judged if is_right is not None]
        if not is_right_G:
            yield scored(task, None, {"valid": 1.0}, unscorable=NO_ANSWER)
            continue
        success = fmean(is_right_G)
        parts = {"valid": 1.0, "success": success}
        yield scored(task, proposer_reward(is_right_G), parts, score=success)
