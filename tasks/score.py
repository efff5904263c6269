"""Rewards: a method's pure function makes the rows, the stage stores every part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tasks.prompt import Row
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import SCORES


@stage(SCORES)
def score(reward: Callable[..., Iterator[Row]], *tables: Tables, **settings: Any) -> Rows:
    """Yield the scores that `reward` makes of the rows of `tables`. An unscorable rollout has no total and says why."""
    yield from reward(*map(rows_of, tables), **settings)
