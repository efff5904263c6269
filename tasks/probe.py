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
    score of them.

    Yields nothing if the update scored none: its rollouts were not sampled at temperature 1.
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
    """Yield for each row the nats per token between engine and trainer, and between the engine and
    the policy before the update; and 1 if all rows together show a stale engine, else 0.

    A stale engine still scores as before the update, unlike the trainer. What was stored at
    sampling says how the engine scored then, but may be something else: of an older policy, of
    nobody, or within top-p. So the trainer's score before the update counts as well. Single rows
    show no stale engine: on GPUs all distances have noise, as large as what a small update changes.
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
    """The engine's score minus another of each row, nats."""
    return [(row["engine"] or 0.0) - (row[column] or 0.0) for row in scored]
