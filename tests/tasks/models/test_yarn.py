"""Contexts beyond a model's positions: YaRN stretches them in the trainer exactly as a
config.json with YaRN would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.models.yarn import Yarn
from tests.support.grpo_jobs import make_models, make_rows, update
from tests.support.reference_grpo import weights

YARN = Yarn(factor=2.0, original=32)  # the models have 64 positions
LORA = {"lora": {"rank": 4, "alpha": 8, "targets": "all-linear"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def stretched(tmp_path_factory) -> Path:
    """The same models with YaRN in their own config.json."""
    root = make_models(tmp_path_factory.mktemp("stretched"))
    for name in ("base", "policy"):
        file = root / name / "config.json"
        own = json.loads(file.read_text())
        rope = {**own.pop("rope_parameters"), "rope_type": "yarn", "factor": 2.0}
        rope["original_max_position_embeddings"] = 32
        file.write_text(json.dumps({**own, "rope_parameters": rope, "max_position_embeddings": 64}))
    return root


def test_the_settings_are_those_that_model_cards_name(folder):
    own = Yarn(factor=4.0).settings(folder / "base")
    assert own == {
        "max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 10000.0,
        },
    }
    assert (
        YARN.settings(folder / "base")["rope_parameters"]["original_max_position_embeddings"] == 32
    )


def test_a_theta_beside_the_other_values_is_found(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"max_position_embeddings": 8, "rope_theta": 5.0, "rope_scaling": null}'
    )
    assert Yarn(factor=1.5).settings(tmp_path)["rope_parameters"]["rope_theta"] == 5.0


def test_positions_are_stretched_once(stretched):
    with pytest.raises(ValueError, match="has no plain rotary positions that YaRN could stretch"):
        YARN.settings(stretched / "base")


@pytest.mark.parametrize(
    "settings", [{"beta": 0.1}, {"beta": 0.1, **LORA}], ids=["full", "adapter"]
)
def test_an_update_stretches_policy_and_reference(tmp_path, folder, stretched, settings):
    """Also when the processes go on from what the update before left in memory."""
    rows = make_rows(folder / "policy")
    policy = {"policy": folder / "base"} if "lora" in settings else {}
    own = {"policy": stretched / "base"} if "lora" in settings else {}
    plain = update(tmp_path, folder, rows, "plain", settings=settings, **policy)
    ours = update(tmp_path, folder, rows, "ours", settings=settings, yarn=YARN, **policy)
    peer = update(tmp_path, stretched, rows, "peer", settings=settings, **own)
    assert ours.steps[0].kl == peer.steps[0].kl != plain.steps[0].kl or "lora" in settings
    assert _weights(ours) == _weights(peer) != _weights(plain)
    going_on = (
        {"policy": ours.policy} if "lora" not in settings else {**policy, "adapter": ours.policy}
    )
    twice = update(tmp_path, folder, rows, "twice", settings=settings, yarn=YARN, **going_on)
    peer_on = {"policy": peer.policy} if "lora" not in settings else {**own, "adapter": peer.policy}
    assert _weights(twice) == _weights(
        update(tmp_path, stretched, rows, "both", settings=settings, **peer_on)
    )


def test_a_trained_policy_keeps_its_own_config(tmp_path, folder):
    trained = update(tmp_path, folder, make_rows(folder / "policy"), yarn=YARN).policy
    assert (
        json.loads((trained / "config.json").read_text())["rope_parameters"]["rope_type"]
        == "default"
    )


def test_rows_may_be_as_long_as_the_stretched_positions(tmp_path, folder):
    rows = make_rows(folder / "policy", n=2)
    rows[0]["prompt_token_ids"] = [2, 3, 4, 5] * 20
    with pytest.raises(ValueError, match="64"):
        update(tmp_path, folder, rows, "short")
    assert update(tmp_path, folder, rows, "long", yarn=Yarn(factor=2.0)).num_datums == 2


def _weights(result) -> dict[str, list[float]]:
    (file,) = result.policy.glob("*.safetensors")
    return {
        name: value.flatten().tolist() for name, value in weights(result.policy, file.name).items()
    }
