"""Rewards: a method's pure function makes the rows, the stage stores every part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tasks.stage import Rows, are_tables, check_tables, name_of, rows_of, stage
from warehouse.schemas import SCORES, Row


@stage(SCORES)
def score(reward: Callable[..., Iterable[Mapping[str, Any]]], /, **given: Any) -> Rows:
    """Yield the scores that `reward` makes of the rows of the tables in `given`, passed by the names of its parameters;
    what is no table is a setting. An unscorable rollout has no total and says why."""
    tables = {name: value for name, value in given.items() if are_tables(value)}
    check_tables(f"reward {name_of(reward)}", reward, tables)
    yield from reward(**{**given, **{name: rows_of(table) for name, table in tables.items()}})


def scored(
    rollout_id: str,
    group_id: str,
    task_id: str,
    total: float | None,
    components: dict[str, float],
    *,
    score: float | None = None,
    unscorable: str | None = None,
) -> Row:
    """A row of `scores`; one that says why it is unscorable has no total and no score.

    `score`: how well the task was answered, 0..1; for a proposer the mean over its answers.
    """
    return {
        "rollout_id": rollout_id,
        "group_id": group_id,
        "task_id": task_id,
        "score": None if unscorable else score,
        "components": components,
        "total": None if unscorable else total,
        "unscorable": unscorable,
    }
