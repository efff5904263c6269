"""Check that engines sample from the policy that the trainer wrote: after every update both
score the same rows."""

from __future__ import annotations

import json
import math

from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy
from tasks.monitors.monitor import Measured
from tasks.rollouts.replies import datum_logprobs
from tasks.stage import Rows, stage
from tasks.update import PROBES_FILE
from warehouse.schemas import PROBES, Datum, Probe
from warehouse.store import Table

NEARER = 0.1  # an engine is stale if it moved less than this share of its distance to the trainer


@stage(PROBES, tools=("fleet",), code=(datum_logprobs,))
def probe(batch: Table, updated: Table, *, policy: Policy, fleet: Fleet) -> Rows:
    """Yield the rows of a batch that its update scored after training, with the engine's score of
    them.

    Yields nothing if the update scored none: its rollouts were not sampled at temperature 1.
    """
    file = updated.files / "update" / PROBES_FILE
    if file.exists():
        trainer = {entry["row"]: entry["logprob"] for entry in json.loads(file.read_text())}
    else:
        trainer = {}
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
            "trainer": trainer[int(name)],
            "before": math.fsum(row["logprobs"]),
            "error": score_of[name]["error"],
        }


def _given(rows: dict[str, Datum]) -> list[dict]:
    ids = ("prompt_token_ids", "completion_token_ids", "loss_mask")
    return [{"prompt_id": name, **{key: row[key] for key in ids}} for name, row in rows.items()]


def policy_in_effect(probes: list[Probe]) -> Measured:
    """Yield for each row the nats per token between engine and trainer, and between the engine now
    and at sampling time; and 1 if all rows together show a stale engine (it still scores as at
    sampling time, unlike the trainer), else
    0. Single rows do not show it: on GPUs both distances have noise, as large as what a small
       update changes."""
    scored = [
        (row["engine"], row["trainer"], row["before"], row["num_tokens"])
        for row in probes
        if row["engine"] is not None
    ]
    apart = [engine - trainer for engine, trainer, _, _ in scored]
    moved = [engine - before for engine, _, before, _ in scored]
    for from_trainer, from_before, (*_, num_tokens) in zip(apart, moved, scored, strict=True):
        yield "policy_mismatch", abs(from_trainer) / num_tokens
        yield "policy_moved", abs(from_before) / num_tokens
    if scored:
        yield "policy_stale", float(math.hypot(*moved) < NEARER * math.hypot(*apart))
