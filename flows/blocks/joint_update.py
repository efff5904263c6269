"""One update on the rollouts of several roles played by one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flows.run import Player, Run
from tasks.normalise import normalise
from tasks.training.grpo import GRPOSettings
from warehouse.store import Place, Table


@dataclass(frozen=True)
class RoleRollouts:
    """A role's rollouts in a step, and their rewards."""

    rollouts: Table
    rewards: Table


def learn_jointly(
    run: Run[Any],
    step: Place,
    model: Player,
    played: Mapping[str, RoleRollouts],
    settings: GRPOSettings,
    *,
    rows_per_role: int,
    mini_batch: int | None,
) -> Player:
    """The model after one update for all roles, with a separate baseline for each.

    `mini_batch` is the number of rows per optimizer step, which mixes rollouts of all roles. There
    is a single step if it is None, or if all roles together have no more rows than that.
    """
    advantages = [
        normalise(step, role.rewards, scheme="zscore", within=(), label=name)
        for name, role in played.items()
    ]
    rollouts = [role.rollouts for role in played.values()]
    rows_per_step = mini_batch
    if mini_batch is not None and mini_batch >= len(played) * rows_per_role:
        rows_per_step = None
    return run.learn(step, model, advantages, rollouts, settings, rows_per_step=rows_per_step)
