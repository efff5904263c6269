"""A control: permuted rewards, which show whether a gain needs right answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

from flows.run import Run
from tasks.score import score
from tasks.stage import rows_by
from warehouse.schemas import Row, Score
from warehouse.store import Place, Table


class Permutable(Protocol):
    """Settings that say whether rewards are permuted."""

    @property
    def permuted(self) -> bool: ...


def permuted(
    run: Run[Any], at: Place, settings: Permutable, scores: Table, label: str = "permuted"
) -> Table:
    """The rewards of answers; permuted among the answers to each question if `settings` say so."""
    if not settings.permuted:
        return scores
    return score(at, permuted_reward, responded=scores, seed=run.cfg.seed, label=label)


def permuted_reward(responded: list[Score], *, seed: int) -> Iterator[Row]:
    """The same rewards, permuted among the answers to each question. Unscorable answers stay so.

    The rewards 1, 0, None, 1 of a group become 1, 1, None, 0, or another order of the three.
    """
    for group_id, rows in rows_by("group_id", responded).items():
        totals = [row["total"] for row in rows if row["total"] is not None]
        random.Random(f"{seed} {group_id}").shuffle(totals)
        permutation = iter(totals)
        for row in rows:
            total = None
            if row["total"] is not None:
                total = next(permutation)
            yield {**row, "total": total, "score": total}
