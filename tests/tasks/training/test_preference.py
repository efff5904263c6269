"""Updates on preferences: the same loss and weights as TRL's DPOTrainer, on pairs that stay
whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

from tasks.training.datums import plan
from tasks.training.grpo import GRPOSettings, StepMetrics, UpdateJob, UpdateResult
from tests.support.grpo_jobs import SCHEMA, SETTINGS, VOCAB, difference, make_models, stored, update
from tests.support.reference_grpo import load, relative_difference, scorer, weights

DPO = {"objective": "preference", "beta": 0.1, "micro_batch_size": 4}
END = 1  # the tokenizer's end, which TRL puts behind every reply


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The models of `make_models`, with a tokenizer that splits words, as TRL reads texts."""
    root = make_models(tmp_path_factory.mktemp("models"))
    vocabulary = {"<pad>": 0, "<end>": END} | {f"t{i}": i for i in range(2, VOCAB)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<end>"
    )
    for name in ("base", "policy"):
        tokenizer.save_pretrained(root / name)
    return root


def make_pairs(n: int = 6, seed: int = 0, longest: int = 12) -> list[dict]:
    """The rows of n pairs of random replies, chosen and rejected side by side."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        prompt = rng.integers(2, VOCAB, rng.integers(2, 9)).tolist()
        for name, advantage in (("chosen", 1.0), ("rejected", -1.0)):
            completion = [*rng.integers(2, VOCAB, rng.integers(2, longest)).tolist(), END]
            rows.append(
                {
                    "rollout_id": f"{name}-{i}",
                    "prompt_token_ids": prompt,
                    "completion_token_ids": completion,
                    "loss_mask": [1] * len(completion),
                    "logprobs": [-1.0] * len(completion),
                    "advantage": advantage,
                }
            )
    return rows


def words(ids: list[int]) -> str:
    return " ".join(f"t{i}" for i in ids)


def by_trl(
    tmp_path: Path, folder: Path, rows: list[dict], lora: LoraConfig | None = None
) -> tuple[dict, dict]:
    """TRL's own trainer on the same pairs in one optimizer step; the parameters and its logs."""
    pairs = Dataset.from_list(
        [
            {
                "prompt": words(chosen["prompt_token_ids"]),
                "chosen": " " + words(chosen["completion_token_ids"][:-1]),
                "rejected": " " + words(rejected["completion_token_ids"][:-1]),
            }
            for chosen, rejected in zip(rows[::2], rows[1::2], strict=True)
        ]
    )
    args = DPOConfig(
        output_dir=str(tmp_path / "trl"),
        learning_rate=SETTINGS["learning_rate"],
        adam_epsilon=SETTINGS["adam_epsilon"],
        weight_decay=0.0,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        max_grad_norm=1.0,
        beta=0.1,
        max_steps=1,
        per_device_train_batch_size=len(pairs),
        max_length=None,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    start = folder / ("base" if lora else "policy")
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32),
        ref_model=None
        if lora
        else AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32),
        args=args,
        train_dataset=pairs,
        # AutoTokenizer would take it for Qwen2's own
        processing_class=PreTrainedTokenizerFast.from_pretrained(start),
        peft_config=lora,
    )
    trainer.train()
    logs = next(log for log in trainer.state.log_history if "loss" in log)
    assert trainer.model is not None
    return {name: value.detach() for name, value in trainer.model.named_parameters()}, logs


def test_loss_margins_and_weights_are_those_of_trls_dpo_trainer(tmp_path, folder):
    rows = make_pairs()
    result = update(tmp_path, folder, rows, settings=DPO)
    theirs, logs = by_trl(tmp_path, folder, rows)
    [step] = result.steps
    assert step.loss == pytest.approx(logs["loss"], rel=1e-4)
    assert step.margin == pytest.approx(logs["rewards/margins"], abs=1e-5)
    assert step.preferred == pytest.approx(logs["rewards/accuracies"])
    assert step.chosen_reward == pytest.approx(logs["rewards/chosen"], abs=1e-5)
    assert step.rejected_reward == pytest.approx(logs["rewards/rejected"], abs=1e-5)
    assert step.grad_norm == pytest.approx(logs["grad_norm"], rel=1e-4)
    assert difference(folder, result, theirs) < 1e-4
    assert step.kl is None and step.entropy is None and step.clip_fraction is None


def test_the_loss_is_that_of_the_papers_equation(tmp_path, folder):
    rows = make_pairs()
    policy = scorer(load(folder / "policy"))
    reference = scorer(load(folder / "base"))

    def log_ratio(row: dict) -> torch.Tensor:
        ids = row["prompt_token_ids"] + row["completion_token_ids"]
        start = len(row["prompt_token_ids"]) - 1
        return policy(ids)[start:].sum() - reference(ids)[start:].sum()

    margins = torch.stack(
        [
            0.1 * (log_ratio(chosen) - log_ratio(rejected))
            for chosen, rejected in zip(rows[::2], rows[1::2], strict=True)
        ]
    )
    [step] = update(tmp_path, folder, rows, settings=DPO).steps
    assert step.loss == pytest.approx(float(-torch.log(torch.sigmoid(margins)).mean()), rel=1e-4)
    assert step.margin == pytest.approx(float(margins.mean()), abs=1e-5)


@pytest.mark.parametrize("micro_batch_size", [2, 8])
def test_micro_batches_change_nothing(tmp_path, folder, micro_batch_size):
    """5 pairs: the last micro-batch of 8 rows is filled up with rows of no weight."""
    rows = make_pairs(5)
    settings = {**DPO, "micro_batch_size": micro_batch_size}
    ours = update(tmp_path, folder, rows, settings=settings)
    whole = update(tmp_path, folder, rows, "whole", settings={**DPO, "micro_batch_size": 10})
    assert ours.steps[0].loss == pytest.approx(whole.steps[0].loss, rel=1e-5)
    assert ours.steps[0].margin == pytest.approx(whole.steps[0].margin, abs=1e-6)
    assert difference(folder, ours, weights(whole.policy)) < 1e-4


def test_an_adapter_learns_against_its_base_and_goes_on_from_another_update(tmp_path, folder):
    rows = make_pairs(4)
    lora = {"rank": 4, "alpha": 8.0}
    settings = {**DPO, "lora": lora, "learning_rate": 0.02, "optimizer_steps": 2}
    start = folder / "base"
    first = update(tmp_path, folder, rows, "first", policy=start, settings=settings)
    assert first.steps[0].margin == pytest.approx(0, abs=1e-6)
    then = update(
        tmp_path,
        folder,
        rows,
        "then",
        policy=start,
        adapter=first.policy,
        optimizer_state=first.optimizer_state,
        settings=settings,
    )
    margin = then.steps[0].margin
    assert margin is not None and margin > 0.01
    assert (then.policy / "adapter_config.json").is_file()


def last_margin(steps: tuple[StepMetrics, ...]) -> float:
    margin = steps[-1].margin
    assert margin is not None
    return margin


@pytest.mark.slow
def test_the_margin_of_unseen_pairs_rises_if_preferences_can_be_learnt_and_not_if_permuted(
    tmp_path, folder
):
    """Chosen replies hold even tokens and rejected ones odd tokens; or a coin decides which of the
    two was chosen. The pairs that are measured were not trained on."""
    rng = np.random.default_rng(3)

    def pairs(n: int, seed: int, permuted: bool = False) -> list[dict]:
        rows = make_pairs(n, seed)
        for chosen, rejected in zip(rows[::2], rows[1::2], strict=True):
            chosen["completion_token_ids"] = [2 * (i // 2) for i in chosen["completion_token_ids"]]
            odd = [2 * (i // 2) + 1 for i in rejected["completion_token_ids"]]
            rejected["completion_token_ids"] = odd
            if permuted and rng.random() < 0.5:
                for name in ("completion_token_ids", "loss_mask", "logprobs"):
                    chosen[name], rejected[name] = rejected[name], chosen[name]
        return rows

    settings = {**DPO, "optimizer_steps": 8, "learning_rate": 0.01, "micro_batch_size": 8}

    def unseen_margin(permuted: bool) -> float:
        name = f"permuted-{permuted}"
        trained = update(
            tmp_path,
            folder,
            pairs(64, 1, permuted),
            name,
            policy=folder / "base",
            settings=settings,
        )
        measured = {**DPO, "learning_rate": 0.0}
        steps = update(
            tmp_path,
            folder,
            pairs(16, 2),
            f"{name}-unseen",
            policy=trained.policy,
            settings=measured,
        ).steps
        return last_margin(steps)

    learnt = unseen_margin(permuted=False)
    control = unseen_margin(permuted=True)
    assert learnt > 0.4
    assert abs(control) < learnt / 4


def test_pairs_stay_in_one_micro_batch_of_one_process(tmp_path):
    datums = stored(tmp_path, make_pairs(7, longest=20))
    planned = plan(
        datums,
        optimizer_steps=2,
        micro_batch_size=4,
        num_processes=2,
        by_length=True,
        pairs=True,
    )
    seen = []
    for step in planned.rows:
        for micro in step:
            for rows in micro:
                for first, second in rows.reshape(-1, 2).tolist():
                    assert (first, second) == (-1, -1) or (first % 2 == 0 and second == first + 1)
                    seen.append(first)
    assert sorted(row for row in seen if row >= 0) == list(range(0, 14, 2))
    assert [len(members) for members in planned.members] == [8, 6]


def with_other_prompt(rows: list[dict]) -> list[dict]:
    return [rows[0], {**rows[1], "prompt_token_ids": [9]}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:1], "1 rows are no pairs"),
        (lambda rows: rows[::-1], r"advantages must be 1 \(chosen\) and -1"),
        (with_other_prompt, "they answer different prompts"),
        (
            lambda rows: [rows[0], {**rows[1], "loss_mask": [0] * len(rows[1]["loss_mask"])}],
            "one has no sampled token",
        ),
    ],
)
def test_rows_that_are_no_pairs_are_refused(tmp_path, folder, change, message):
    with pytest.raises(ValueError, match=message):
        update(tmp_path, folder, change(make_pairs(1)), settings=DPO)


def test_more_steps_than_pairs_are_refused(tmp_path, folder):
    with pytest.raises(ValueError, match=r"2 pair\(s\) cannot make 3 optimizer steps"):
        update(tmp_path, folder, make_pairs(2), settings={**DPO, "optimizer_steps": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": 0.0}, "beta above 0"),
        ({"micro_batch_size": 3}, "must be even, not 3"),
        ({"micro_batch_size": 1, "shared_prompt_tokens": 64}, "must be even"),
    ],
)
def test_settings_that_preferences_cannot_have_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        GRPOSettings(**{**DPO, **change})


@pytest.mark.slow
def test_a_killed_update_goes_on_from_its_checkpoint_and_ends_with_the_same_weights(
    tmp_path, folder
):
    rows = make_pairs(200)
    settings = {**DPO, "optimizer_steps": 50, "micro_batch_size": 2}
    whole = update(tmp_path, folder, rows, "whole", settings=settings)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "batch.parquet")
    job = UpdateJob(
        batch=tmp_path / "batch.parquet",
        policy=folder / "policy",
        reference=folder / "base",
        out=tmp_path / "killed",
        settings=GRPOSettings(**{**SETTINGS, **settings}),
        checkpoints=checkpoints,
        checkpoint_s=0.0,
    )
    file = tmp_path / "job.json"
    file.write_text(job.model_dump_json())
    command = [sys.executable, "-m", "tasks.training.trainer", str(file)]
    process = subprocess.Popen(command, env={**os.environ, "ACCELERATE_USE_CPU": "true"})
    try:
        deadline = time.monotonic() + 240
        while not list(checkpoints.glob("step-*")) and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it left a checkpoint"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    result = subprocess.run(
        command, env={**os.environ, "ACCELERATE_USE_CPU": "true"}, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr[-2000:]
    resumed = UpdateResult.model_validate_json((tmp_path / "killed" / "result.json").read_text())
    assert [step.step for step in resumed.steps] == list(range(1, 51))
    assert [step.margin for step in resumed.steps] == pytest.approx(
        [step.margin for step in whole.steps], abs=1e-4
    )
    before = weights(folder / "policy")
    assert relative_difference(before, weights(resumed.policy), weights(whole.policy)) < 1e-4
