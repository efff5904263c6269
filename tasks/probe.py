"""Check that engines sample from the policy that the trainer wrote: after every update both
score the same rows."""

from __future__ import annotations

import json
import math
from typing import Literal

from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy
from tasks.monitors.monitor import Measured
from tasks.rollouts.replies import datum_logprobs
from tasks.stage import Rows, stage
from tasks.training.grpo import RowScore
from tasks.update import PROBES_FILE
from warehouse.schemas import PROBES, Datum, Probe
from warehouse.store import Table

NEARER = 0.1  # an engine is stale if it moved less than this share of its distance to the trainer


@stage(PROBES, tools=("fleet",), code=(datum_logprobs,))
def probe(batch: Table, updated: Table, *, policy: Policy, fleet: Fleet) -> Rows:
    """Yield the rows of a batch that its update scored before and after training, with the engine's
    scores.

    Yields nothing if the update scored none, because its rollouts were not sampled at temperature
    1.
    """
    file = updated.files / "update" / PROBES_FILE
    if file.exists():
        entries = [RowScore.model_validate(entry) for entry in json.loads(file.read_text())]
    else:
        entries = []
    trainer = {entry.row: entry for entry in entries}
    rows = batch.rows(Datum) if trainer else []
    chosen = {f"{number}": rows[number] for number in trainer}
    if chosen:
        score_of = {row["prompt_id"]: row for row in fleet.datum_logprobs(_given(chosen), policy)}
    else:
        score_of = {}
    for name, row in chosen.items():
        yield {
            "rollout_id": row["rollout_id"],
            "datum": row["datum"],
            "policy": policy.id,
            "policy_hash": policy.content_hash,
            "num_tokens": score_of[name]["num_tokens"],
            "engine": score_of[name]["logprob"],
            "trainer": trainer[int(name)].logprob,
            "before": math.fsum(
                logprob
                for logprob, is_sampled in zip(row["logprobs"], row["loss_mask"], strict=True)
                if is_sampled
            ),
            "trainer_before": trainer[int(name)].before,
            "error": score_of[name]["error"],
        }


def _given(rows: dict[str, Datum]) -> list[dict]:
    ids = ("prompt_token_ids", "completion_token_ids", "loss_mask")
    return [{"prompt_id": name, **{key: row[key] for key in ids}} for name, row in rows.items()]


def policy_in_effect(probes: list[Probe]) -> Measured:
    """Yield for each row, in nats per token, the distance between engine and trainer
    (`policy_mismatch`) and between the engine and the policy before the update (`policy_moved`);
    then `policy_stale`, 1 if all rows together show that the engine is stale, else 0.

    Unlike the trainer, a stale engine still scores as it did before the update. The stored
    log-probabilities usually say how it scored then, but they may be those of an older policy, of
    no policy, or of sampling with top-p. So the trainer's scores before the update are compared,
    too. No single row can show a stale engine: on GPUs all distances have noise as large as the
    effect of a small update.
    """
    scored = [row for row in probes if row["engine"] is not None]
    apart = _distances(scored, "trainer")
    moved = [_distances(scored, "before")]
    if all(row["trainer_before"] is not None for row in scored):
        moved.append(_distances(scored, "trainer_before"))
    for row, from_trainer, from_before in zip(scored, apart, moved[-1], strict=True):
        yield "policy_mismatch", abs(from_trainer) / row["num_tokens"]
        yield "policy_moved", abs(from_before) / row["num_tokens"]
    if scored:
        least = min(math.hypot(*distances) for distances in moved)
        yield "policy_stale", float(least < NEARER * math.hypot(*apart))


def _distances(
    scored: list[Probe], column: Literal["trainer", "before", "trainer_before"]
) -> list[float]:
    """The engine's score of each row minus the score in `column`, in nats."""
    return [(row["engine"] or 0.0) - (row[column] or 0.0) for row in scored]
