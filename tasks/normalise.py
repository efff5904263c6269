"""Turn rewards into advantages, within groups of any kind. Unscorable rows enter no mean and get advantage 0."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, get_args

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import REWARDS, Row
from warehouse.store import Table

Scheme = Literal["zscore", "centre"]
Spread = Literal["population", "sample"]
EPSILON = 1e-6  # added to the standard deviation, as in the released GRPO code
SCORE_COLUMN = {"prompt_id": "group_id"}  # a group is the rollouts of one prompt; other keys have one name


@stage(REWARDS)
def normalise(
    scores: Tables,
    *,
    scheme: Scheme,
    within: Sequence[str] = ("group_id",),
    about: Tables = (),
    spread: Spread = "population",
    chosen: Tables = (),
    by: str = "task_id",
) -> Rows:
    """Yield the scores with their advantages: `zscore`, or `centre`, which does not divide (Dr. GRPO).

    Rows with equal values in the columns `within` are one group: by default the rollouts of one prompt, with `()` all
    rows. Columns that scores lack (task_type, role) are looked up in `about`: tables keyed by task_id, rollout_id or
    prompt_id, such as tasks or rollouts. With `chosen` tables (selections, groups), only rows whose `by` (task_id or
    group_id) is kept there are compared and yielded. Raises ValueError for a column that no table has, for a row
    missing from `about`, and for an unknown scheme.
    """
    if scheme not in get_args(Scheme):
        raise ValueError(f"no scheme {scheme!r}: there are {', '.join(get_args(Scheme))}")
    rows, kept = rows_of(scores), {row[by] for row in rows_of(chosen) if row["kept"]}
    rows = [row for row in rows if row[by] in kept] if chosen else rows
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, key in enumerate(_keys(rows, within, [about] if isinstance(about, Table) else about)):
        if rows[i]["total"] is not None:
            groups[key].append(i)
    advantage_of = dict.fromkeys(range(len(rows)), 0.0)
    for members in groups.values():
        totals = [rows[i]["total"] for i in members]
        values = centre(totals) if scheme == "centre" else zscore(totals, spread)
        advantage_of.update(zip(members, values, strict=True))
    for i, row in enumerate(rows):
        yield {**row, "advantage": advantage_of[i]}


def _keys(rows: list[Row], within: Sequence[str], about: Sequence[Table]) -> list[tuple[Any, ...]]:
    """The values of the columns `within`, for each row."""
    of_scores = REWARDS.arrow.names
    columns = [[row[c] for row in rows] if c in of_scores else _looked_up(rows, c, about) for c in within]
    return list(zip(*columns, strict=True)) if within else [()] * len(rows)


def _looked_up(rows: list[Row], column: str, about: Sequence[Table]) -> list[Any]:
    """A column, from the first kind of table that has it. Rollouts are large: only that column of them is read."""
    tables = [table for table in about if column in table.schema.arrow.names]
    if not tables:
        among = ", ".join(table.address for table in about) or "no tables"
        raise ValueError(f"no column {column} in scores or in {among}: name the table that has it in `about`")
    schema, value_of = tables[0].schema, dict[str, Any]()
    key = schema.key[0]
    for table in (table for table in tables if table.schema is schema):
        for batch in table.batches([key, column]):
            value_of |= zip(batch[key].to_pylist(), batch[column].to_pylist(), strict=True)
    ids = [row[SCORE_COLUMN.get(key, key)] for row in rows]
    if unknown := {i for i in ids if i not in value_of}:
        raise ValueError(f"{tables[0].address} lacks {len(unknown)} {key}s of the scores, {min(unknown)} among them")
    return [value_of[i] for i in ids]


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
