"""Rewards to advantages, within groups or over a batch. Unscorable rows are left out of every mean and get 0."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import REWARDS

Scheme = Literal["group_zscore", "group_centre", "batch_zscore"]
Spread = Literal["population", "sample"]
EPSILON = 1e-6  # added to the standard deviation, as in the released GRPO code


@stage(REWARDS)
def normalise(
    scores: Tables, *, scheme: Scheme, spread: Spread = "population", chosen: Tables = (), by: str = "task_id"
) -> Rows:
    """Yield the scores with their advantages.

    `group_zscore` compares the rollouts of one prompt, `group_centre` the same without division (Dr. GRPO),
    `batch_zscore` all rows of the tables. Where `chosen` tables are given (selections, groups), only rows whose `by`
    (task_id or group_id) is kept there are compared, and left.
    """
    rows, kept = rows_of(scores), {row[by] for row in rows_of(chosen) if row["kept"]}
    rows = [row for row in rows if row[by] in kept] if chosen else rows
    groups: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        if row["total"] is not None:
            groups["batch" if scheme == "batch_zscore" else row["group_id"]].append(i)
    advantage_of = dict.fromkeys(range(len(rows)), 0.0)
    for members in groups.values():
        totals = [rows[i]["total"] for i in members]
        values = centre(totals) if scheme == "group_centre" else zscore(totals, spread)
        advantage_of.update(zip(members, values, strict=True))
    for i, row in enumerate(rows):
        yield {**row, "advantage": advantage_of[i]}


def centre(reward_G: Sequence[float]) -> list[float]:
    """r - mean(r).

    >>> centre([1, 0, 1, 1])
    [0.25, -0.75, 0.25, 0.25]
    """
    mean = math.fsum(reward_G) / len(reward_G)
    return [r - mean for r in reward_G]


def zscore(reward_G: Sequence[float], spread: Spread = "population") -> list[float]:
    """(r - mean) / (std + 1e-6): SCOPE eq. 2, with the population standard deviation of its appendix D.

    Equal rewards, and a group of one, carry no signal: 0.

    >>> [round(a, 3) for a in zscore([1, 0, 1, 1])]
    [0.577, -1.732, 0.577, 0.577]
    >>> [round(a, 3) for a in zscore([1, 0, 1, 1], "sample")]
    [0.5, -1.5, 0.5, 0.5]
    """
    centred = centre(reward_G)
    if len(reward_G) < 2 or max(reward_G) == min(reward_G):
        return [0.0] * len(reward_G)
    degrees = len(reward_G) - (spread == "sample")
    std = math.sqrt(math.fsum(c * c for c in centred) / degrees)
    return [c / (std + EPSILON) for c in centred]
