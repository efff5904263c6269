"""Rewards: a method's pure function makes the rows, the stage stores every part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import SCORES


@stage(SCORES)
def score(reward: Callable[..., Iterable[Mapping[str, Any]]], *tables: Tables, **settings: Any) -> Rows:
    """Yield the scores that `reward` makes of the rows of `tables`. An unscorable rollout has no total and says why."""
    yield from reward(*map(rows_of, tables), **settings)
