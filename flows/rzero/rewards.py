"""R-Zero's rewards (arXiv 2508.05004), and the rows of `rewards` made from them."""

from __future__ import annotations

from collections.abc import Iterator

from flows.blocks.difficulty_reward import r_zero as uncertainty  # eq. 3
from tasks.score import scored
from warehouse.schemas import Label, Novelty, Row, Task


def challenger_reward(share: float | None, alike: float, weight: float = 1.0) -> float:
    """Eq. 5: uncertainty minus the share of similar questions (eq. 4), at least 0; 0 without a
    question or a readable answer.

    >>> challenger_reward(0.5, 0.25), challenger_reward(1.0, 0.25), challenger_reward(None, 0.0)
    (0.75, 0.0, 0.0)
    """
    if share is None:
        return 0.0
    return max(0.0, uncertainty(share) - weight * alike)


def challenger_rewards(
    tasks: list[Task], labels: list[Label], novelties: list[Novelty], *, weight: float
) -> Iterator[Row]:
    """Yield rows of `rewards`: eq. 5 for every question.

    A question's uncertainty comes from the share of its answers that agree with its label; `weight`
    times the share of similar questions is subtracted. The reward is at least 0, and 0 without a
    question or a readable answer to it.
    """
    share_of = {row["task_id"]: row["share"] for row in labels}
    alike_of = {row["task_id"]: row["share"] for row in novelties}
    for task in tasks:
        share = share_of.get(task["task_id"])
        alike = alike_of.get(task["task_id"]) or 0.0
        parts = {"alike": alike}
        if share is not None:
            parts |= {"share": share, "uncertainty": uncertainty(share)}
        yield scored(task, challenger_reward(share, alike, weight), parts, score=share)
