"""Updates of a mixture of experts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.support.grpo_jobs import VOCAB, make_models, make_rows, update

ATTENTION = {"rank": 4, "alpha": 8, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = make_models(tmp_path_factory.mktemp("models"))
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCAB,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_experts=4,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(root / "mixture")
    AutoTokenizer.from_pretrained(root / "base").save_pretrained(root / "mixture")
    return root


@pytest.mark.parametrize("lora", [None, ATTENTION])
def test_a_mixture_of_experts_is_trained_without_a_loss_of_its_own(tmp_path, folder, lora):
    """At its start the policy is the reference, and rho is 1 where the old log-probabilities are
    the policy's: the loss is minus the mean advantage, without the balance of experts that the
    model's config asks for."""
    rows = make_rows(folder / "policy", "shared")
    settings = {"beta": 0.5, "on_policy": True, "loss_type": "dapo", "lora": lora}
    start = {"policy": folder / "mixture", "reference": folder / "mixture"}
    made = update(tmp_path, folder, rows, settings=settings, **start)
    tokens = [len(row["completion_token_ids"]) for row in rows]
    mean = sum(n * row["advantage"] for n, row in zip(tokens, rows, strict=True)) / sum(tokens)
    assert made.steps[0].loss == pytest.approx(-mean, rel=1e-4)
    if lora is None:
        before, after = (
            load_file(where / "model.safetensors") for where in (folder / "mixture", made.policy)
        )
        moved = {name for name in before if not before[name].equal(after[name])}
        assert before.keys() == after.keys() and any(".experts." in name for name in moved)
