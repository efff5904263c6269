"""A KL reference scored by engines: the trainer loads no reference, and makes the same update as
with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, Policy
from tasks.references import references
from tests.support.grpo_jobs import difference, make_models, make_rows, update
from tests.support.reference_grpo import load, scorer, weights
from tests.support.rows import publish, row


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def scored(folder: Path, rows: list[dict]) -> list[list[float]]:
    """Log-probabilities of the completions under the base, by transformers."""
    score = scorer(load(folder / "base"))
    with torch.no_grad():
        whole = [score(r["prompt_token_ids"] + r["completion_token_ids"]) for r in rows]
    return [w[len(r["prompt_token_ids"]) - 1 :].tolist() for w, r in zip(whole, rows, strict=True)]


@pytest.mark.parametrize("settings", [{}, {"shared_prompt_tokens": 64, "micro_batch_size": 1}])
@pytest.mark.parametrize("kind", ["tools", "shared"])
def test_the_update_is_the_one_with_the_reference_itself(tmp_path, folder, kind, settings):
    settings = {"beta": 0.5, "optimizer_steps": 2, **settings}
    rows = make_rows(folder / "policy", kind, n=6)
    table = [
        {"rollout_id": r["rollout_id"], "logprobs": s}
        for r, s in zip(rows, scored(folder, rows), strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "reference_logprobs.parquet")
    whole = update(tmp_path, folder, rows, "whole", settings=settings)
    nowhere = {
        "reference": tmp_path / "nowhere",
        "reference_logprobs": tmp_path / "reference_logprobs.parquet",
    }
    stored = update(tmp_path, folder, rows, "stored", settings=settings, **nowhere)
    assert difference(folder, stored, weights(whole.policy)) < 1e-5
    for ours, theirs in zip(stored.steps, whole.steps, strict=True):
        assert ours.kl == pytest.approx(theirs.kl, rel=1e-4) and ours.loss == pytest.approx(
            theirs.loss, rel=1e-4
        )


class Told(Fleet):
    def datum_logprobs(self, rows: Any, policy: Policy) -> Any:
        for given in reversed(list(rows)):
            name = given["prompt_id"]
            completion = given["completion_token_ids"]
            logprobs = [-float(i) for i in completion]
            yield {
                "prompt_id": name,
                "num_tokens": 1,
                "logprob": -1.0,
                "logprobs": logprobs,
                "error": self.error,
            }

    error: str | None = None


def batch(place) -> Any:
    rows = [
        row("batches", rollout_id=f"r{i}", completion_token_ids=[i, i + 1], loss_mask=[1, 1])
        for i in (3, 1, 2)
    ]
    return publish(place, "batches", *rows)


def test_references_stand_in_the_order_of_the_batch(place, tmp_path):
    fleet = Told(EngineConfig(model="m", max_model_len=8), 1, tmp_path)
    made = references(
        place, batch(place), policy=Policy(id="p", weights="m", content_hash="0"), fleet=fleet
    )
    assert [(r["rollout_id"], r["logprobs"]) for r in made.rows()] == [
        ("r3", [-3.0, -4.0]),
        ("r1", [-1.0, -2.0]),
        ("r2", [-2.0, -3.0]),
    ]


def test_a_row_that_the_engine_has_no_room_for_is_named(place, tmp_path):
    fleet = Told(EngineConfig(model="m", max_model_len=8), 1, tmp_path)
    fleet.error = "prompt of 9 tokens leaves no room"
    with pytest.raises(ValueError, match=r"rollout r3: .*Raise engine.max_model_len"):
        references(
            place, batch(place), policy=Policy(id="p", weights="m", content_hash="0"), fleet=fleet
        )
