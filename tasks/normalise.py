"""Turn rewards into advantages, within groups of any kind.

Unscorable rows enter no mean and get advantage 0.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.schemas import ADVANTAGES, Row
from warehouse.store import Table

Scheme = Literal["zscore", "centre", "none"]
Spread = Literal["population", "sample"]
EPSILON = 1e-6  # added to the standard deviation, as in the released GRPO code
# key of another table -> the column of rewards that holds it, where the two have different names:
# the group of a reward is the rollouts of one prompt
REWARD_COLUMN = {"prompt_id": "group_id"}


@stage(ADVANTAGES)
def normalise(
    rewards: Tables,
    *,
    scheme: Scheme,
    within: Sequence[str] = ("group_id",),
    lookup: Tables = (),
    spread: Spread = "population",
    chosen: Tables = (),
    by: str = "task_id",
) -> Rows:
    """Yield the rewards with their advantages: `zscore`, `centre`, which does not divide (Dr.
    GRPO), or `none`: the reward itself (REINFORCE without a baseline).

    Rows with equal values in the columns `within` are one group: by default the rollouts of one
    prompt, with `()` all rows. Columns that rewards lack (task_type, role) are looked up in
    `lookup`: tables keyed by task_id, rollout_id or prompt_id, such as tasks or rollouts. With
    `chosen` tables (selections, groups), only rows whose `by` (task_id or group_id) is kept there
    are compared and yielded.

    Raises ValueError for a column that no table has, for a row missing from `lookup`, and for an
    unknown scheme.
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
    for i, group in enumerate(_groups(rows, within, as_tables(lookup))):
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


def _groups(
    rows: list[Row], within: Sequence[str], lookup: Sequence[Table]
) -> list[tuple[Any, ...]]:
    """The group of each row: its values of the columns `within`."""
    groups: list[tuple[Any, ...]] = [()] * len(rows)
    for column in within:
        if column in ADVANTAGES.arrow.names:
            values = [row[column] for row in rows]
        else:
            values = _looked_up(rows, column, lookup)
        groups = [(*group, value) for group, value in zip(groups, values, strict=True)]
    return groups


def _looked_up(rows: list[Row], column: str, lookup: Sequence[Table]) -> list[Any]:
    """A column, from the first kind of table that has it.

    Rollouts are large: only that column of them is read.
    """
    tables = [table for table in lookup if column in table.schema.arrow.names]
    if not tables:
        among = ", ".join(table.address for table in lookup) or "no tables"
        raise ValueError(
            f"no column {column} in rewards or in {among}: name the table that has it in `lookup`"
        )
    schema = tables[0].schema
    value_of = dict[str, Any]()
    key = schema.key[0]
    for table in (table for table in tables if table.schema is schema):
        for batch in table.batches([key, column]):
            value_of |= zip(batch[key].to_pylist(), batch[column].to_pylist(), strict=True)
    ids = [row[REWARD_COLUMN.get(key, key)] for row in rows]
    unknown = set(ids) - value_of.keys()
    if unknown:
        raise ValueError(
            f"{tables[0].address} lacks {len(unknown)} {key}s of the rewards, {min(unknown)} among"
            " them"
        )
    return [value_of[i] for i in ids]


def centre(reward_G: Sequence[float]) -> list[float]:
    """r - mean(r). Equal rewards give exactly 0, although their mean may be rounded.

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
