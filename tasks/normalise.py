"""Turn rewards into advantages, within groups of any kind.

Unscorable rows enter no mean and get advantage 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import ADVANTAGES, REWARDS, Row

Scheme = Literal["zscore", "centre", "none"]
Spread = Literal["population", "sample"]
EPSILON = 1e-6  # added to the standard deviation, as in the released GRPO code


@stage(ADVANTAGES)
def normalise(
    rewards: Tables,
    *,
    scheme: Scheme,
    within: Sequence[str] = ("group_id",),
    spread: Spread = "population",
    chosen: Tables = (),
    by: str = "task_id",
) -> Rows:
    """Yield the rewards with their advantages.

    `scheme` is `zscore`; `centre`, which does not divide by the standard deviation (Dr. GRPO); or
    `none`, the reward itself (REINFORCE without a baseline). Rows with equal values in the columns
    `within` form a group: by default the rollouts of one prompt; with `()`, all rows. With `chosen`
    tables (selections, groups), only rows whose `by` (task_id or group_id) is kept there are
    compared and yielded.

    Raises ValueError for a column that rewards do not have, and for an unknown scheme.
    """
    if scheme not in get_args(Scheme):
        raise ValueError(f"no scheme {scheme!r}: there are {', '.join(get_args(Scheme))}")
    # A worked example: the rewards 1, 0, None of one prompt's three rollouts become, with `centre`,
    # the advantages 0.5, -0.5 and 0: the row without a reward is not in the mean.
    rows = rows_of(rewards)
    if chosen:
        kept = {row[by] for row in rows_of(chosen) if row["kept"]}
        rows = [row for row in rows if row[by] in kept]
    members_of: dict[tuple[Any, ...], list[int]] = defaultdict(list)  # positions of its rows
    for i, group in enumerate(_groups(rows, within)):
        if rows[i]["reward"] is not None:
            members_of[group].append(i)
    advantages = [0.0] * len(rows)
    for members in members_of.values():
        rewards_G = [rows[i]["reward"] for i in members]
        if scheme == "none":
            own = rewards_G
        elif scheme == "centre":
            own = centre(rewards_G)
        else:
            own = zscore(rewards_G, spread)
        for i, advantage in zip(members, own, strict=True):
            advantages[i] = advantage
    for row, advantage in zip(rows, advantages, strict=True):
        yield {**row, "advantage": advantage}


def _groups(rows: list[Row], within: Sequence[str]) -> list[tuple[Any, ...]]:
    """The group of each row: its values in the columns `within`."""
    unknown = set(within) - set(REWARDS.arrow.names)
    if unknown:
        raise ValueError(f"rewards have no column {', '.join(sorted(unknown))} to compare within")
    return [tuple(row[column] for column in within) for row in rows]


def centre(reward_G: Sequence[float]) -> list[float]:
    """r - mean(r). Equal rewards give exactly 0, even if their mean is rounded.

    >>> centre([1, 0, 1, 1]), centre([-0.1, -0.1, -0.1])
    ([0.25, -0.75, 0.25, 0.25], [0.0, 0.0, 0.0])
    """
    if max(reward_G) == min(reward_G):
        return [0.0] * len(reward_G)
    mean = math.fsum(reward_G) / len(reward_G)
    return [r - mean for r in reward_G]


def zscore(reward_G: Sequence[float], spread: Spread = "population") -> list[float]:
    """(r - mean) / (std + 1e-6): SCOPE eq. 2, with the population standard deviation of its
    appendix D.

    Equal rewards, and a group of one, carry no signal: 0.

    >>> [round(a, 3) for a in zscore([1, 0, 1, 1])]
    [0.577, -1.732, 0.577, 0.577]
    >>> [round(a, 3) for a in zscore([1, 0, 1, 1], "sample")]
    [0.5, -1.5, 0.5, 0.5]
    """
    centred = centre(reward_G)
    if len(reward_G) < 2 or max(reward_G) == min(reward_G):
        return [0.0] * len(reward_G)
    degrees_of_freedom = len(reward_G) - (1 if spread == "sample" else 0)
    std = math.sqrt(math.fsum(c * c for c in centred) / degrees_of_freedom)
    return [c / (std + EPSILON) for c in centred]
