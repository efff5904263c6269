"""Engines score a batch under the KL reference or a teacher, so that the trainer neither loads nor
runs that model."""

from __future__ import annotations

from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy
from tasks.rollouts.replies import datum_logprobs
from tasks.stage import Rows, stage
from warehouse.schemas import REFERENCES, Datum
from warehouse.store import Table


@stage(REFERENCES, tools=("fleet",), code=(datum_logprobs,))
def references(batch: Table, *, policy: Policy, fleet: Fleet) -> Rows:
    """Yield the log-probabilities of every datum's completion under `policy`, in the order of the
    batch.

    Raises ValueError for a datum that leaves no token free in the engine's context.
    """
    rows = batch.rows(Datum)
    ids = ("prompt_token_ids", "completion_token_ids", "loss_mask")
    rows_to_score = [
        {"prompt_id": str(number), **{key: row[key] for key in ids}}
        for number, row in enumerate(rows)
    ]
    score_of = {row["prompt_id"]: row for row in fleet.datum_logprobs(rows_to_score, policy)}
    for number, row in enumerate(rows):
        score = score_of[str(number)]
        if score["error"]:
            raise ValueError(
                f"rollout {row['rollout_id']}: {score['error']}. Raise engine.max_model_len by a"
                " token"
            )
        yield {
            "rollout_id": row["rollout_id"],
            "datum": row["datum"],
            "logprobs": score["logprobs"],
        }
