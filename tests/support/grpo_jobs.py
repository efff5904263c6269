"""Models of a few weights, stored rollouts made by hand, and updates on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tasks.training.datums import Datums, read_datums
from tasks.training.grpo import GRPOSettings, UpdateJob
from tasks.training.trainer import train
from tests.support.reference_grpo import (
    entropy_scorer,
    load,
    relative_difference,
    run,
    scorer,
    weights,
)

SCHEMA = pa.schema(
    [
        ("rollout_id", pa.string()),
        ("prompt_token_ids", pa.list_(pa.int32())),
        ("completion_token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("advantage", pa.float64()),
    ]
)
VOCAB = 48
# Adam's step ignores the gradient's scale and amplifies rounding noise where gradients vanish
# (plain torch in float32 and float64 then differ by 1e-4). With this epsilon a wrong denominator
# shows, and noise is not amplified.
SETTINGS = {"learning_rate": 5e-3, "micro_batch_size": 3, "adam_epsilon": 1e-3}


def make_models(root: Path) -> Path:
    """base/ and policy/ in a folder: the policy is the base with slightly changed weights, so
    that KL is not 0."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,  # noqa: E501
        num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.3,  # noqa: E501
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    vocabulary = {f"t{i}": i for i in range(VOCAB)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocabulary, unk_token="t0")),
        pad_token="t0",
        eos_token="t1",
    )
    model.save_pretrained(root / "base")
    tokenizer.save_pretrained(root / "base")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
    model.save_pretrained(root / "policy")
    tokenizer.save_pretrained(root / "policy")
    return root


def make_rows(
    sampler: Path, kind: str = "plain", n: int = 8, seed: int = 0, drift: float = 0.3
) -> list[dict]:
    """n datums whose stored log-probabilities are the sampler's plus noise, so that some tokens
    clip."""
    rng = np.random.default_rng(seed)
    score = scorer(load(sampler))
    rows = []
    for i in range(n):
        prompt = rng.integers(2, VOCAB, rng.integers(2, 9)).tolist()
        completion = rng.integers(2, VOCAB, rng.integers(4, 14)).tolist()
        mask = [1] * len(completion)
        if kind == "tools":  # a tool inserted tokens 1 and 2
            mask[1:3] = [0, 0]
        if kind == "shared" and i % 4:  # one of four answers to a prompt
            prompt = rows[-1]["prompt_token_ids"]
        # second turn of the previous datum: its prompt holds the first turn
        if kind == "turns" and i % 2:
            prompt = rows[-1]["prompt_token_ids"] + rows[-1]["completion_token_ids"] + prompt
        with torch.no_grad():
            logps = score(prompt + completion)[len(prompt) - 1 :].numpy()
        noisy = np.minimum(logps + rng.normal(0, drift, len(logps)), 0) * mask
        advantage = rows[-1]["advantage"] if kind == "turns" and i % 2 else float(rng.normal())
        rows.append(
            {
                "rollout_id": f"r{i}",
                "prompt_token_ids": prompt,
                "completion_token_ids": completion,
                "loss_mask": mask,
                "logprobs": noisy.astype(np.float32).tolist(),
                "advantage": advantage,
            }
        )
    return rows


def stored(folder: Path, rows: list[dict]) -> Datums:
    """Rows as the trainer reads them."""
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "batch.parquet")
    return read_datums(folder / "batch.parquet")


def update(tmp_path: Path, folder: Path, rows: list[dict], name: str = "out", **job):
    settings = {**SETTINGS, **job.pop("settings", {})}
    batch = tmp_path / f"{name}.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), batch)
    job = {"policy": folder / "policy", "reference": folder / "base", **job}
    return train(
        UpdateJob(batch=batch, out=tmp_path / name, settings=GRPOSettings(**settings), **job)
    )


def torch_update(
    folder: Path, batches: list[list[dict]], policy: str = "policy", **settings
) -> tuple[dict, list[float]]:
    s = GRPOSettings(**{**SETTINGS, **settings})
    model = load(folder / "policy")
    reference = scorer(load(folder / "base"), s.temperature) if s.beta else None
    entropy = entropy_scorer(model, s.temperature) if s.entropy_coef else None
    losses = run(model.parameters(), scorer(model, s.temperature), reference, batches, s, entropy)
    return {k: v.detach() for k, v in model.named_parameters()}, losses


def difference(folder: Path, result, theirs: dict) -> float:
    return relative_difference(weights(folder / "policy"), weights(result.policy), theirs)
