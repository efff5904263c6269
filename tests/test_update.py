"""The update stage: which models it hands to the trainer, and what it leaves behind."""

import shutil
from pathlib import Path

import pytest
from rows import publish, row

from tasks.engine import Policy
from tasks.grpo import GRPOSettings, UpdateJob, UpdateResult
from tasks.update import update, updated_policy

BASE = Path(__file__).parent.parent / "data" / "micro" / "base"
HUB_NAME = "lab/micro-base"
DATUM = {
    "rollout_id": "r",
    "prompt_token_ids": [5, 6, 7],
    "completion_token_ids": [8, 9],
    "loss_mask": [1, 1],
    "logprobs": [-0.5, -0.5],
    "advantage": 1.0,
}


class InThisProcess:
    """A trainer without a process of its own."""

    def train(self, job: UpdateJob) -> UpdateResult:
        from tasks.trainer import train

        return train(job)


@pytest.fixture
def hub_model(tmp_path, monkeypatch) -> str:
    """A model known by its hub name: it lies in the hub's cache, and the hub cannot be reached."""
    kept = tmp_path / "hub" / "models--lab--micro-base"
    shutil.copytree(BASE, kept / "snapshots" / ("a" * 40))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("a" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return HUB_NAME


def test_a_model_named_as_on_the_hub_is_trained_from_its_cache(place, hub_model):
    policy = Policy(id=hub_model, weights=hub_model, content_hash="0")
    made = update(
        place,
        publish(place, "batches", row("batches", **DATUM)),
        policy=policy,
        reference=policy,
        optimizer_state=None,
        settings=GRPOSettings(learning_rate=1e-3, beta=0.1),
        role="solver",
        trainer=InThisProcess(),
    )
    trained, _ = updated_policy(made)
    assert (Path(trained.weights) / "tokenizer.json").read_bytes() == (BASE / "tokenizer.json").read_bytes()
    assert (Path(trained.weights) / "model.safetensors").read_bytes() != (BASE / "model.safetensors").read_bytes()
