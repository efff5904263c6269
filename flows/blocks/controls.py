"""A control: permuted rewards, which show whether a gain depends on right answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Protocol

from flows.run import Run
from tasks.score import score
from tasks.stage import rows_by
from warehouse.schemas import Reward, Row
from warehouse.store import Place, Table


class Permutable(Protocol):
    """Settings that say whether rewards are permuted."""

    @property
    def permuted(self) -> bool: ...


def permuted(
    run: Run[Any], at: Place, settings: Permutable, rewards: Table, label: str = "permuted"
) -> Table:
    """The rewards of answers, permuted among the answers to each question if `settings` say so."""
    if not settings.permuted:
        return rewards
    return score(at, permuted_rewards, responded=rewards, seed=run.cfg.seed, label=label)


def permuted_rewards(responded: list[Reward], *, seed: int) -> Iterator[Row]:
    """The same rewards, permuted among the answers to each question. Unscorable answers stay so.

    The rewards 1, 0, None, 1 of a group become 1, 1, None, 0, or another order of the three.
    """
    for group_id, rows in rows_by("group_id", responded).items():
        rewards = [row["reward"] for row in rows if row["reward"] is not None]
        random.Random(f"{seed} {group_id}").shuffle(rewards)
        permutation = iter(rewards)
        for row in rows:
            reward = None
            if row["reward"] is not None:
                reward = next(permutation)
            yield {**row, "reward": reward, "score": reward}
