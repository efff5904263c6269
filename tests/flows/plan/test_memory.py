"""The memory that a plan states is what the libraries use: on tensors without data, and in real
processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from flows.plan.hardware import GIB
from flows.plan.shapes import KNOWN, Shape
from flows.plan.trainer import update_memory
from tasks.training.grpo import GRPOSettings, LoRASettings, UpdateJob
from tasks.training.shared_prompts import PackedRow
from tests.support.fake_update import fake_update
from tests.support.grpo_jobs import stored

MODELS = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
LORA = LoRASettings(rank=64, alpha=128)
ATTENTION = LORA.model_copy(update={"targets": ("q_proj", "k_proj", "v_proj", "o_proj")})
CASES = [
    ("Qwen/Qwen3-8B", {"beta": 1e-3}, 6, 16384),
    ("Qwen/Qwen3-8B", {"beta": 1e-3}, 6, 2048),  # the reference holds most
    ("Qwen/Qwen3-8B", {"beta": 0.0}, 8, 8192),  # the head does
    ("Qwen/Qwen3-8B", {"beta": 0.0, "lora": LORA}, 1, 16384),
    ("Qwen/Qwen3-4B-Base", {"beta": 0.0}, 8, 16384),  # its head is its embedding
    ("Qwen/Qwen2.5-7B-Instruct", {"beta": 0.0}, 8, 20480),
    ("Qwen/Qwen2.5-7B-Instruct", {"beta": 0.0, "lora": LORA}, 1, 20480),
    ("allenai/Olmo-3-7B-Instruct", {"beta": 1e-3}, 6, 16384),
    ("allenai/Olmo-3-7B-Instruct", {"beta": 0.0, "lora": LORA}, 1, 16384),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"beta": 0.0}, 8, 20480),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", {"beta": 0.0, "lora": ATTENTION}, 1, 20480),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "changes", "ranks", "tokens"), CASES)
def test_a_plan_states_what_the_libraries_hold(model, changes, ranks, tokens, record_property):
    """Three layers at full width. Fails if an upgrade of torch, Accelerate, TRL, PEFT or
    transformers changes it."""
    config = {**MODELS[model], "num_hidden_layers": 3}
    settings = GRPOSettings(
        dtype="bfloat16", gradient_checkpointing=True, micro_batch_size=1, **changes
    )
    stated = update_memory(Shape.of(config), settings, ranks=ranks, tokens=tokens)
    peaks = fake_update(config, settings, ranks=ranks, tokens=tokens)
    held = max(sum(kinds.values()) for kinds in peaks.values()) / GIB
    record_property("GiB", (stated.tensors, held))
    assert stated.tensors == pytest.approx(held, rel=0.015)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "lora"), [("Qwen/Qwen2.5-7B-Instruct", None), ("Qwen/Qwen3-8B", LORA)]
)
def test_a_plan_states_what_a_prompt_with_its_answers_holds(model, lora, record_property):
    """Eight answers of 512 tokens after a prompt of 16,384, whose keys and values are held eight
    times in one layer."""
    config = {**MODELS[model], "num_hidden_layers": 3}
    about = {"beta": 0.0, "micro_batch_size": 1, "shared_prompt_tokens": 20480, "lora": lora}
    settings = GRPOSettings(dtype="bfloat16", gradient_checkpointing=True, **about)
    stated = update_memory(Shape.of(config), settings, ranks=8, tokens=20480).tensors
    peaks = fake_update(
        config, settings, ranks=8, tokens=20480, packed=PackedRow.of(16384, [512] * 8)
    )
    held = max(sum(kinds.values()) for kinds in peaks.values()) / GIB
    record_property("GiB", (stated, held))
    assert stated == pytest.approx(held, rel=0.015)


PROJECT = Path(__file__).parents[3]
SMALL = {
    "model_type": "qwen3",
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}
PROMPT = 2
TOKENS = 256


@pytest.mark.slow
def test_two_real_processes_hold_what_is_simulated(tmp_path, record_property):
    """The project's trainer, sharded over two CPU processes, makes two optimizer steps of two
    micro-batches each. Its last micro-batch, when gradients and moments exist, is compared with the
    second one on tensors without data."""
    Qwen3ForCausalLM(
        Qwen3Config(**{k: v for k, v in SMALL.items() if k != "model_type"})
    ).save_pretrained(tmp_path / "m")
    AutoTokenizer.from_pretrained(PROJECT / "data" / "micro" / "base").save_pretrained(
        tmp_path / "m"
    )
    answer = TOKENS - PROMPT
    given = {
        "prompt_token_ids": [5] * PROMPT,
        "completion_token_ids": [6] * answer,
        "advantage": 1.0,
    }
    rows = [
        {"rollout_id": str(i), "loss_mask": [1] * answer, "logprobs": [-9.4] * answer, **given}
        for i in range(8)
    ]
    stored(tmp_path, rows)
    settings = GRPOSettings(
        dtype="bfloat16", gradient_checkpointing=True, micro_batch_size=1, optimizer_steps=2
    )
    places = {"policy": tmp_path / "m", "reference": tmp_path / "m", "out": tmp_path / "out"}
    job = UpdateJob(batch=tmp_path / "batch.parquet", settings=settings, **places)
    (tmp_path / "job.json").write_text(job.model_dump_json())
    launch = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "tests/support/counted_fsdp.py",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT),
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
    }
    files = [str(tmp_path / name) for name in ("job.json", "peaks.json")]
    done = subprocess.run(
        [sys.executable, *launch, *files],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    real = json.loads((tmp_path / "peaks.json").read_text())
    fake = fake_update(SMALL, settings, ranks=2, tokens=TOKENS, cuda=False)
    for phase in ("reference", "forward", "backward"):
        held = sum(real[f"{phase} 4"].values())
        simulated = sum(fake[f"{phase} 2"].values())
        record_property(phase, (held, simulated))
        assert simulated == pytest.approx(held, rel=0.01), phase
