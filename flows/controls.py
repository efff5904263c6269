"""A control: permute the rewards of each question's answers, to see whether a gain needs right answers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from flows.run import Run
from tasks.score import score
from tasks.stage import rows_by
from warehouse.schemas import Row, Score
from warehouse.store import Place, Table


def permuted(run: Run[Any], at: Place, role: Any, scores: Table, label: str = "permuted") -> Table:
    """The scores of a role's answers; if its settings say `permuted`, permuted among the answers to each question."""
    if not role.permuted:
        return scores
    return score(at, permuted_scores, responded=scores, seed=run.cfg.seed, label=label)


def permuted_scores(responded: list[Score], *, seed: int) -> Iterator[Row]:
    """The same rewards, permuted among the answers to each question."""
    for group_id, rows in rows_by("group_id", responded).items():
        totals = [row["total"] for row in rows if row["total"] is not None]
        random.Random(f"{seed} {group_id}").shuffle(totals)
        for row in rows:
            total = None if row["total"] is None else totals.pop(0)
            yield {**row, "total": total, "score": total}
