"""The probe detects an engine that still samples from the policy before an update; any other agrees
with the
trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, Policy
from tasks.monitors.limits import Limits
from tasks.monitors.monitor import UPDATE, Alarm, watch
from tasks.probe import policy_in_effect, probe
from tasks.references import references
from tasks.rollouts.replies import datum_logprobs
from tasks.training.grpo import GRPOSettings
from tasks.update import update, updated_policy
from tests.support.rows import publish, row
from tests.support.scripted import POLICY, ScriptedEngine
from tests.tasks.test_update import BASE, InThisProcess
from warehouse.code import fingerprint


class Told(Fleet):
    """A fleet with a given score for each row."""

    def __init__(self, folder: Path, scores: list[float]) -> None:
        super().__init__(EngineConfig(model=str(BASE), max_model_len=64), 1, folder)
        self.scores = scores

    def datum_logprobs(self, rows: Any, policy: Policy) -> Any:
        for given, score in zip(rows, self.scores, strict=True):
            yield {
                "prompt_id": given["prompt_id"],
                "num_tokens": 2,
                "logprob": score,
                "error": None,
            }


def datum(i: int, **given: Any) -> dict:
    ids = {"prompt_token_ids": [5, 6, 7], "completion_token_ids": [8, 9 + i], "loss_mask": [1, 1]}
    stored = {"logprobs": [-0.5, -0.5], "advantage": float(i + 1)}
    return row("batches", rollout_id=f"r{i}", **{**ids, **stored, **given})


def updated(place, **given: Any) -> tuple[Any, Any, Policy]:
    policy = Policy(id="base", weights=str(BASE), content_hash="0")
    batch = publish(place, "batches", datum(0, **given), datum(1, **given))
    made = update(
        place,
        batch,
        policy=policy,
        reference=policy,
        optimizer_state=None,
        role="solver",
        trainer=InThisProcess(),
        settings=GRPOSettings(learning_rate=1e-2, beta=0.0),
    )
    return batch, made, updated_policy(made)[0]


def test_the_trainers_scores_are_those_of_the_weights_that_it_wrote(place, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    batch, made, policy = updated(place)
    rows = probe(place, batch, made, policy=policy, fleet=Told(tmp_path, [-1.0, -1.0])).rows()
    written, base = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (policy.weights, BASE)
    )

    def score(model: Any, given: Any) -> float:
        ids = torch.tensor([[*given["prompt_token_ids"], *given["completion_token_ids"]]])
        logps = model(ids).logits.log_softmax(-1)[0, 2:-1].gather(1, ids[0, 3:, None])
        return logps.detach().sum().item()

    for found, given in zip(sorted(rows, key=lambda r: r["rollout_id"]), batch.rows(), strict=True):
        assert found["trainer"] == pytest.approx(score(written, given), abs=1e-4)
        assert found["trainer_before"] == pytest.approx(score(base, given), abs=1e-4)
        assert found["before"] == -1.0 and found["num_tokens"] == 2
        assert found["policy_hash"] == policy.content_hash


@pytest.mark.parametrize("stale", [False, True])
def test_an_engine_that_did_not_change_stops_the_run(place, tmp_path, stale):
    batch, made, policy = updated(place)
    first = probe(
        place, batch, made, policy=policy, fleet=Told(tmp_path, [-1.0, -1.0]), label="first"
    )
    scores = [-1.0001, -0.9999] if stale else [row["trainer"] + 0.001 for row in first.rows()]
    probes = probe(place, batch, made, policy=policy, fleet=Told(tmp_path, scores), label="second")
    about: dict[str, Any] = {
        "limits": Limits(),
        "policy": policy.id,
        "benchmark": UPDATE,
        "probes": probes,
    }
    if stale:
        with pytest.raises(Alarm, match="policy_stale is 1, the limit is"):
            watch(place, policy_in_effect, **about)
    else:
        assert watch(place, policy_in_effect, **about)["policy_mismatch"] == pytest.approx(0.0005)


@pytest.mark.parametrize(
    "given",
    [
        {"logprobs": [0.0, 0.0]},  # nobody sampled the reply
        {"logprobs": [-0.01, -0.01]},  # an older policy did, or top-p left few tokens
        {"loss_mask": [1, 0], "logprobs": [-0.5, -9.0]},
    ],
    ids=["given", "other", "masked"],
)
def test_a_stale_engine_is_found_whatever_was_stored_at_sampling(place, tmp_path, given):
    batch, made, policy = updated(place, **given)
    first = probe(
        place, batch, made, policy=policy, fleet=Told(tmp_path, [-1.0, -1.0]), label="first"
    ).rows()
    for column, is_stale in (("trainer_before", 1.0), ("trainer", 0.0)):
        scores = [row[column] + 0.001 for row in first]
        fleet = Told(tmp_path, scores)
        rows = probe(place, batch, made, policy=policy, fleet=fleet, label=column).rows()
        assert dict(policy_in_effect(rows))["policy_stale"] == is_stale  # type: ignore[arg-type]


def test_only_counted_tokens_are_in_the_score_at_sampling(place, tmp_path):
    batch, made, policy = updated(place, loss_mask=[1, 0], logprobs=[-0.5, -9.0])
    rows = probe(place, batch, made, policy=policy, fleet=Told(tmp_path, [-1.0, -1.0])).rows()
    assert [row["before"] for row in rows] == [-0.5, -0.5]


def test_rows_that_hardly_moved_by_chance_are_no_stale_engine(place):
    """After a small update numerical noise makes five of eight rows look stale; the others have
    moved as far as trainer and engine are apart."""
    moved = [0.01] * 5 + [0.2, -0.3, 0.25]
    scores = [
        {
            "engine": -9.0,
            "trainer": -9.3,
            "before": -9.0 - distance,
            "trainer_before": None,
            "num_tokens": 10,
        }
        for distance in moved
    ]
    measured = [dict([found]) for found in policy_in_effect(scores)]  # type: ignore[arg-type]
    assert {"policy_stale": 0.0} in measured and {"policy_stale": 1.0} not in measured


def test_only_sampled_tokens_are_scored():
    engine = ScriptedEngine(lambda *_: "red", likelihood=lambda prompt, reply: -0.25)
    given = {
        "prompt_id": "p",
        "prompt_token_ids": [4, 5],
        "completion_token_ids": [6, 7, 8, 6],
        "loss_mask": [1, 0, 0, 1],
    }
    [found] = datum_logprobs(engine, [given], POLICY)  # type: ignore[list-item]
    assert (found["logprob"], found["num_tokens"]) == (-0.5, 2)


@pytest.mark.parametrize("stage", [probe, references])
def test_how_engines_are_run_makes_no_score_stale(stage):
    """A run whose old weights are freed could not score them again."""
    assert not [name for name in fingerprint(stage.__wrapped__) if name.startswith("tasks.engines")]
