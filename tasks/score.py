"""Rewards: a method's pure function makes the rows, and the stage stores every component."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any

from tasks.read import why_not_sampled
from tasks.stage import Rows, are_tables, check_tables, name_of, rows_of, stage
from warehouse.schemas import REWARDS, Row


@stage(REWARDS)
def score(reward: Callable[..., Iterable[Mapping[str, Any]]], /, **arguments: Any) -> Rows:
    """Yield the rewards that `reward` computes.

    It receives `arguments` by parameter name: for a table, its rows; any other value is a setting,
    whose parameter is keyword-only. An unscorable rollout has a reason and no reward.

    Raises TypeError if the tables do not match the parameters of `reward`.
    """
    tables = {name: value for name, value in arguments.items() if are_tables(value)}
    check_tables(f"reward {name_of(reward)}", reward, tables, arguments.keys() - tables.keys())
    rows = {name: rows_of(table) for name, table in tables.items()}
    yield from reward(**{**arguments, **rows})


def scored(
    row: Mapping[str, Any],
    reward: float | None,
    components: dict[str, float],
    *,
    group: str | None = None,
    score: float | None = None,
    unscorable: str | None = None,
) -> Row:
    """A row of `rewards` for a task, an answer or another row that was read from a rollout.

    `group`: the group it is compared in, by default the rollouts of its prompt. `score`: how well
    the task was answered, 0..1; for a proposer the mean over its answers. A row that is
    `unscorable`, or that was never sampled (no fault of the policy), has no reward and no score.
    """
    why = why_not_sampled(row) or unscorable
    if why:
        reward = None
        score = None
    return {
        "rollout_id": row.get("judge_rollout_id") or row.get("rollout_id") or row["task_id"],
        "group_id": group or row.get("prompt_id") or "",
        "task_id": row["task_id"],
        "score": score,
        "components": components,
        "reward": reward,
        "unscorable": why,
    }


def mean_of(values: Iterable[float | None], otherwise: float | None = None) -> float | None:
    """The mean of the known values; `otherwise` if none is known.

    >>> mean_of([1.0, 0.5, None]), mean_of([None], 0.5), mean_of([])
    (0.75, 0.5, None)
    """
    known = [value for value in values if value is not None]
    if known:
        return fmean(known)
    return otherwise
