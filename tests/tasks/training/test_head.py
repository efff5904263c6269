# TRL imports it from elsewhere.
# pyright: reportPrivateImportUsage=false
"""On GPUs the head rounds no logits; on CPUs its tiles are small enough to reuse memory."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.trainer import grpo_trainer
from trl.trainer import utils as trl_utils

import tasks.training.trainer  # noqa: F401  # changes TRL's head
from tasks.training import head
from tests.support.grpo_jobs import VOCAB


def log_probs(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Of a model in bfloat16 with logits around 20: the head's, and exact ones from the same
    hidden states."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=64,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        initializer_range=1.0,
    )
    model = Qwen3ForCausalLM(config).bfloat16()
    ids = torch.randint(0, VOCAB, (1, 200))
    hidden = model.model(ids).last_hidden_state[:, :-1]
    exact = (
        (hidden.float() @ model.lm_head.weight.float().t())
        .log_softmax(-1)
        .gather(2, ids[:, 1:, None])[..., 0]
    )
    grpo_trainer.add_fused_lm_head(model)
    return model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs, exact


def test_logits_are_float32_on_gpus(monkeypatch):
    found, exact = log_probs(True, monkeypatch)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    found, exact = log_probs(False, monkeypatch)
    assert (found - exact).abs().max() > 0.01


def test_small_tiles_change_neither_log_probs_nor_gradients(monkeypatch):
    """Tiles of 16 vocabulary entries for 63 tokens, and of the whole vocabulary for one."""
    monkeypatch.setattr(head, "REUSED", 4 * 64 * 16 + 1)
    monkeypatch.setattr(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", head.WIDEST)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = Qwen3ForCausalLM(config)
    ids = torch.randint(0, VOCAB, (1, 64))
    exact = model(ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    (wanted,) = torch.autograd.grad(exact.square().sum(), model.lm_head.weight)
    grpo_trainer.add_fused_lm_head(model)
    head.fit_tiles(ids.masked_fill(torch.arange(64) == 0, -100))
    assert trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE == 16
    found = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(found.square().sum(), model.lm_head.weight)[0], wanted
    )
    head.fit_tiles(ids.masked_fill(torch.arange(64) > 0, -100))
    assert trl_utils._CHUNKED_LOGPROB_CHUNK_SIZE > VOCAB
