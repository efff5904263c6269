"""The rows an update trains on: rollouts cut into datums, each with its rollout's advantage."""

from __future__ import annotations

from tasks.rollout import datums
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import BATCHES


@stage(BATCHES)
def batch(rewards: Tables, rollouts: Tables, *, max_tokens: int | None = None) -> Rows:
    """Yield the datums of every rewarded rollout; rows of advantage 0 stay, since they count in the loss's
    denominator and its KL.

    A rollout without sampled tokens has nothing to train on; a datum above `max_tokens` is left out with all of its
    rollout's.
    """
    advantage = {row["rollout_id"]: row["advantage"] for row in rows_of(rewards)}
    for rollout in rows_of(rollouts):
        cut = list(datums(rollout)) if rollout["rollout_id"] in advantage else []
        if max_tokens and any(len(d["prompt_token_ids"]) + len(d["completion_token_ids"]) > max_tokens for d in cut):
            continue
        for i, datum in enumerate(cut):
            yield {
                "rollout_id": rollout["rollout_id"],
                "datum": i,
                "advantage": advantage[rollout["rollout_id"]],
                **datum,
            }
