"""Updates of on-policy distillation: the loss and gradient of TRL's trainer, on stored
log-probabilities of a teacher."""

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
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl.experimental.server_distillation import (
    ServerDistillationConfig,
    ServerDistillationTrainer,
)

from tasks.training.distillation import reverse_kl
from tasks.training.grpo import GRPOSettings, UpdateJob, UpdateResult
from tests.support.grpo_jobs import (
    SCHEMA,
    SETTINGS,
    VOCAB,
    difference,
    make_models,
    make_rows,
    update,
)
from tests.support.reference_grpo import load, relative_difference, scorer, weights

DISTILLATION = {"objective": "distillation", "beta": 0.0, "loss_type": "dapo"}
REFERENCES = pa.schema([("rollout_id", pa.string()), ("logprobs", pa.list_(pa.float32()))])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A student in policy/, and in base/ the teacher."""
    return make_models(tmp_path_factory.mktemp("models"))


def teacher_logprobs(folder: Path, rows: list[dict]) -> list[list[float]]:
    """Log-probabilities of each row's completion under the teacher."""
    score = scorer(load(folder / "base"))
    scores = []
    for row in rows:
        prompt = row["prompt_token_ids"]
        with torch.no_grad():
            scores.append(score(prompt + row["completion_token_ids"])[len(prompt) - 1 :].tolist())
    return scores


def taught(tmp_path: Path, folder: Path, rows: list[dict], scores: list | None = None) -> Path:
    """The teacher's log-probabilities of the rows, as a file."""
    scores = scores or teacher_logprobs(folder, rows)
    file = tmp_path / "reference_logprobs.parquet"
    table = [
        {"rollout_id": row["rollout_id"], "logprobs": logprobs}
        for row, logprobs in zip(rows, scores, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(table, schema=REFERENCES), file)
    return file


def distil(tmp_path: Path, folder: Path, rows: list[dict], name: str = "out", **settings):
    return update(
        tmp_path,
        folder,
        rows,
        name,
        reference_logprobs=taught(tmp_path, folder, rows),
        settings={**DISTILLATION, **settings},
    )


class Teacher:
    """The teacher behind TRL's client of a vLLM server, without the server."""

    def __init__(self, folder: Path) -> None:
        self.score = scorer(load(folder / "base"))

    def __call__(self, **_: object) -> Teacher:
        """What TRL takes for the client's class."""
        return self

    def get_sequence_logprobs(
        self, *, sequences: list[list[int]], prompt_lengths: list[int], **_: object
    ) -> dict[str, list]:
        actual = []
        for ids, start in zip(sequences, prompt_lengths, strict=True):
            with torch.no_grad():
                actual.append([[value] for value in self.score(ids)[start - 1 :].tolist()])
        # the teacher's likeliest token has no part in the loss at beta 1
        return {
            "actual_logprobs": actual,
            "logprobs": actual,
            "logprob_token_ids": [[[0] for _ in row] for row in actual],
        }


def by_trl(monkeypatch, tmp_path: Path, folder: Path, rows: list[dict]) -> tuple[float, float]:
    """The loss and the norm of the gradient that TRL's own trainer computes of the rows."""
    monkeypatch.setattr("trl.generation.vllm_client.VLLMClient", Teacher(folder))
    model = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    trainer = ServerDistillationTrainer(
        model=model,
        args=ServerDistillationConfig(
            output_dir=str(tmp_path / "trl"),
            teacher_model_server_url="http://127.0.0.1:1",
            beta=1.0,
            loss_top_k=1,
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["t2"]}),
        # AutoTokenizer would take it for Qwen2's own
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder / "policy"),
    )
    trainer.current_gradient_accumulation_steps = 1
    prompts = padded([row["prompt_token_ids"] for row in rows], left=True)
    completions = padded([row["completion_token_ids"] for row in rows], left=False)
    loss = trainer.compute_loss(
        model,
        {
            "prompt_ids": prompts[0],
            "prompt_mask": prompts[1],
            "completion_ids": completions[0],
            "completion_mask": completions[1],
        },
    )
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return loss.item(), float(torch.cat([grad.flatten() for grad in gradients]).norm())


def padded(ids: list[list[int]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids as a tensor, and its mask."""
    width = max(map(len, ids))
    tokens = torch.zeros((len(ids), width), dtype=torch.int64)
    mask = torch.zeros_like(tokens)
    for number, row in enumerate(ids):
        span = slice(width - len(row), width) if left else slice(0, len(row))
        tokens[number, span] = torch.tensor(row)
        mask[number, span] = 1
    return tokens, mask


def test_loss_and_gradient_are_those_of_trls_distillation_trainer(monkeypatch, tmp_path, folder):
    rows = make_rows(folder / "policy", n=7)
    [step] = distil(tmp_path, folder, rows).steps
    loss, grad_norm = by_trl(monkeypatch, tmp_path, folder, rows)
    assert loss > 1e-3
    assert step.loss == pytest.approx(loss, rel=1e-4)
    assert step.grad_norm == pytest.approx(grad_norm, rel=1e-4)


def test_the_gap_is_the_mean_difference_of_log_probabilities(tmp_path, folder):
    """A tool's tokens do not count."""
    rows = make_rows(folder / "policy", kind="tools")
    student = scorer(load(folder / "policy"))
    gaps = []
    for row, teacher in zip(rows, teacher_logprobs(folder, rows), strict=True):
        prompt = row["prompt_token_ids"]
        with torch.no_grad():
            own = student(prompt + row["completion_token_ids"])[len(prompt) - 1 :].tolist()
        gaps += [
            p - q for p, q, counts in zip(own, teacher, row["loss_mask"], strict=True) if counts
        ]
    [step] = distil(tmp_path, folder, rows).steps
    assert step.teacher_gap == pytest.approx(float(np.mean(gaps)), abs=1e-5)
    assert step.margin is None and step.kl is None


@pytest.mark.parametrize("student", [0.2, 0.5, 0.9])
def test_the_divergence_is_0_only_if_both_find_the_token_as_likely(student):
    values = {
        teacher: float(reverse_kl(torch.tensor(student).log(), torch.tensor(teacher).log()))
        for teacher in (0.01, 0.2, 0.5, 0.9, 0.99)
    }
    assert values.pop(student) == pytest.approx(0, abs=1e-7)
    assert min(values.values()) > 0.01


def test_certain_tokens_have_a_finite_loss_and_gradient():
    student = torch.tensor([0.0, -1e-9, -40.0], requires_grad=True)
    loss = reverse_kl(student, torch.tensor([-30.0, 0.0, 0.0])).sum()
    loss.backward()
    assert loss.isfinite()
    assert student.grad is not None and student.grad.isfinite().all()


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_micro_batches_and_shared_prompts_change_nothing(tmp_path, folder, loss_type):
    rows = make_rows(folder / "policy", kind="shared", n=8)
    settings = {"loss_type": loss_type, "max_completion_tokens": 16}
    whole = distil(tmp_path, folder, rows, "whole", micro_batch_size=8, **settings)
    others = {
        "small": {"micro_batch_size": 3},
        "shared": {"micro_batch_size": 1, "shared_prompt_tokens": 64},
    }
    for name, changed in others.items():
        result = distil(tmp_path, folder, rows, name, **settings, **changed)
        assert result.steps[0].loss == pytest.approx(whole.steps[0].loss, rel=1e-5)
        assert result.steps[0].teacher_gap == pytest.approx(whole.steps[0].teacher_gap, rel=1e-4)
        assert difference(folder, result, weights(whole.policy)) < 1e-4


def vocabulary_kl(student: Path, folder: Path, rows: list[dict]) -> float:
    """The mean reverse KL over the whole vocabulary, at every token of the completions."""
    models = load(student), load(folder / "base")
    values = []
    for row in rows:
        ids = torch.tensor([row["prompt_token_ids"] + row["completion_token_ids"]])
        with torch.no_grad():
            own, other = (model(ids).logits[0].log_softmax(-1) for model in models)
        kl = (own.exp() * (own - other)).sum(-1)
        values.append(float(kl[len(row["prompt_token_ids"]) - 1 : -1].mean()))
    return float(np.mean(values))


def on_policy_rows(folder: Path, n: int, seed: int) -> list[dict]:
    """Prompts of three random tokens, with twelve tokens that the student samples."""
    generator = torch.Generator().manual_seed(seed)
    model = load(folder / "policy")
    ids = torch.randint(2, VOCAB, (n, 3), generator=generator)
    for _ in range(12):
        with torch.no_grad():
            probabilities = model(ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probabilities, 1, generator=generator)], dim=1)
    return [
        {
            "rollout_id": f"r{number}",
            "prompt_token_ids": row[:3],
            "completion_token_ids": row[3:],
            "loss_mask": [1] * 12,
            "logprobs": [-1.0] * 12,
            "advantage": 1.0,
        }
        for number, row in enumerate(ids.tolist())
    ]


def test_a_student_comes_closer_to_its_teacher_on_unseen_rows(tmp_path, folder):
    """Over the whole vocabulary, of which the loss sees one token at a position."""
    rows = on_policy_rows(folder, n=256, seed=0)
    result = distil(
        tmp_path,
        folder,
        rows,
        optimizer_steps=16,
        micro_batch_size=16,
        learning_rate=1e-3,
        adam_epsilon=1e-8,
    )
    unseen = on_policy_rows(folder, n=32, seed=1)
    before = vocabulary_kl(folder / "policy", folder, unseen)
    after = vocabulary_kl(result.policy, folder, unseen)
    assert after < 0.85 * before  # 0.200 and 0.154 were measured


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (None, "needs the teacher's log-probabilities"),
        ([[float("-inf")] * 20], "must be finite natural log-probabilities"),
        ([[0.5] * 20], "must be finite natural log-probabilities"),
        ([[-1.0] * 3], "completion tokens and 3 log-probabilities of the teacher"),
    ],
)
def test_log_probabilities_that_are_missing_or_none_are_refused(tmp_path, folder, scores, message):
    [row] = make_rows(folder / "policy", n=1)
    reference_logprobs = None
    if scores is not None:
        num_tokens = len(row["completion_token_ids"])
        reference_logprobs = taught(tmp_path, folder, [row], [scores[0][:num_tokens]])
    with pytest.raises(ValueError, match=message):
        update(
            tmp_path, folder, [row], reference_logprobs=reference_logprobs, settings=DISTILLATION
        )


def test_a_kl_term_beside_it_is_refused():
    with pytest.raises(ValueError, match="has no KL term: set beta to 0"):
        GRPOSettings(**{**DISTILLATION, "beta": 0.1})


@pytest.mark.slow
def test_a_killed_update_goes_on_from_its_checkpoint_and_ends_with_the_same_weights(
    tmp_path, folder
):
    rows = make_rows(folder / "policy", n=300)
    settings = {**DISTILLATION, "optimizer_steps": 50, "micro_batch_size": 2}
    reference_logprobs = taught(tmp_path, folder, rows)
    whole = update(
        tmp_path, folder, rows, "whole", reference_logprobs=reference_logprobs, settings=settings
    )
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "batch.parquet")
    job = UpdateJob(
        batch=tmp_path / "batch.parquet",
        policy=folder / "policy",
        reference=folder / "base",
        reference_logprobs=reference_logprobs,
        out=tmp_path / "killed",
        settings=GRPOSettings(**{**SETTINGS, **settings}),
        checkpoints=checkpoints,
        checkpoint_s=0.0,
    )
    file = tmp_path / "job.json"
    file.write_text(job.model_dump_json())
    command = [sys.executable, "-m", "tasks.training.trainer", str(file)]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + 240
        while not list(checkpoints.glob("step-*")) and time.monotonic() < deadline:
            assert process.poll() is None, "it ended before it left a checkpoint"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "result.json").exists()
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    resumed = UpdateResult.model_validate_json((tmp_path / "killed" / "result.json").read_text())
    assert [step.step for step in resumed.steps] == list(range(1, 51))
    assert [step.loss for step in resumed.steps] == pytest.approx(
        [step.loss for step in whole.steps], abs=1e-4
    )
    before = weights(folder / "policy")
    assert relative_difference(before, weights(resumed.policy), weights(whole.policy)) < 1e-4
