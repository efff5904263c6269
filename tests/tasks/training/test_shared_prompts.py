"""Answers that share one computed prompt make the same update as each of them with its own copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tasks.training import shared_prompts
from tasks.training.datums import plan
from tasks.training.grpo import GRPOSettings
from tasks.training.shared_prompts import PackedRow
from tasks.training.stored_rollouts import StoredRolloutsTrainer
from tests.support.grpo_jobs import difference, make_models, make_rows, stored, torch_update, update
from tests.support.reference_grpo import relative_difference, weights

SHARED = {"shared_prompt_tokens": 64, "micro_batch_size": 1}


@pytest.fixture(params=[2048, 0], ids=["apart", "together"], autouse=True)
def long(request, monkeypatch) -> None:
    """Answers attend to the prompt each by itself, or all together as to a long prompt on CPUs."""
    monkeypatch.setattr(shared_prompts, "LONG", request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def shared_rows(folder: Path, n: int = 10) -> list[dict]:
    """Four answers to one prompt, four to another, two to a third; the second token of each is
    not the policy's."""
    rows = make_rows(folder / "policy", "shared", n=n)
    for row in rows:
        row["loss_mask"][1], row["logprobs"][1] = 0, 0.0
    return rows


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0.0},
        {"beta": 0.5, "optimizer_steps": 2},
        {"gradient_checkpointing": True},
        {"beta": 0.0, "entropy_coef": 0.3},
    ],
)
def test_parameters_change_as_in_plain_torch(tmp_path, folder, loss_type, changes, record_property):
    rows = shared_rows(folder)
    s = {"loss_type": loss_type, "max_completion_tokens": 20, **changes}
    result = update(tmp_path, folder, rows, settings={**s, **SHARED})
    theirs, losses = torch_update(folder, [rows], **s)
    record_property("relative_difference", difference(folder, result, theirs))
    assert difference(folder, result, theirs) < 1e-5
    assert [step.loss for step in result.steps] == pytest.approx(losses, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_adapter_changes_as_without(tmp_path, folder, checkpointing):
    """All metrics are the same, too: the reference, the policy with its adapter off, is also
    computed on packed
    rows."""
    rows = shared_rows(folder)
    about = {"policy": folder / "base", "reference": folder / "base"}
    s = {
        "lora": {"rank": 4, "alpha": 8},
        "beta": 0.5,
        "gradient_checkpointing": checkpointing,
        "micro_batch_size": 1,
    }
    start = update(tmp_path, folder, rows, "start", settings={**s, "learning_rate": 0.0}, **about)
    plain = update(tmp_path, folder, rows, "plain", settings=s, adapter=start.policy, **about)
    shared = update(
        tmp_path, folder, rows, "shared", settings={**s, **SHARED}, adapter=start.policy, **about
    )
    adapters = [
        weights(result.policy, "adapter_model.safetensors") for result in (start, shared, plain)
    ]
    assert relative_difference(*adapters) < 1e-5
    for name in (
        "loss",
        "kl",
        "entropy",
        "mean_ratio",
        "clip_fraction",
        "grad_norm",
        "num_tokens",
        "num_datums",
    ):
        ours, theirs = (getattr(result.steps[0], name) for result in (shared, plain))
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-7), name


def test_weights_in_float32_are_trained_by_arithmetic_in_bfloat16(tmp_path, folder):
    rows = shared_rows(folder)
    s = {"dtype": "bfloat16", "beta": 0.0, "micro_batch_size": 1}
    plain = update(tmp_path, folder, rows, "plain", settings=s).steps[0]
    shared = update(tmp_path, folder, rows, "shared", settings={**s, **SHARED}).steps[0]
    for name in ("loss", "entropy", "mean_ratio", "grad_norm"):
        assert getattr(shared, name) == pytest.approx(getattr(plain, name), rel=0.02), name


def test_a_prompt_is_computed_once(tmp_path, folder, monkeypatch):
    """For a prompt of P tokens with answers of T tokens, P - 1 plus the sum of T positions pass
    through the model."""
    rows = shared_rows(folder)
    seen = []
    score = StoredRolloutsTrainer._get_per_token_logps_and_entropies

    def watched(self, model, *given, **named):
        counted = torch.is_grad_enabled()  # later scoring is without gradients
        hook = model.get_input_embeddings().register_forward_hook(
            lambda _, ids, __: seen.append(ids[0].numel() * counted)
        )
        found = score(self, model, *given, **named)
        hook.remove()
        return found

    monkeypatch.setattr(StoredRolloutsTrainer, "_get_per_token_logps_and_entropies", watched)
    update(tmp_path, folder, rows, settings={"beta": 0.0, **SHARED})
    prompts = {tuple(row["prompt_token_ids"]) for row in rows}
    answers = sum(len(row["completion_token_ids"]) for row in rows)
    assert len(prompts) == 3
    assert sum(seen) == sum(len(prompt) - 1 for prompt in prompts) + answers


def test_answers_are_dealt_to_rows_of_at_most_so_many_tokens(tmp_path, folder):
    datums = stored(tmp_path, shared_rows(folder))
    for most in (1, 20, 30, 64):
        dealt = plan(
            datums,
            optimizer_steps=1,
            micro_batch_size=1,
            num_processes=2,
            by_length=True,
            shared_prompt_tokens=most,
        )
        parts = [part for micro in dealt.rows[0] for part in micro if part[0] >= 0]
        assert sorted(np.concatenate(parts)) == list(range(10))
        for part in parts:
            assert len({tuple(datums.prompts[i]) for i in part}) == 1
            tokens = len(datums.prompts[part[0]]) + sum(len(datums.completions[i]) for i in part)
            assert len(part) == 1 or tokens <= most
        assert {len(micro) for micro in dealt.rows[0]} == {2}


def test_an_answer_sees_the_prompt_and_itself_only(folder):
    """The last of three answers changes when the prompt does, and not when another answer does."""
    model = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    rows = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 10, 11, 0], [5, 6, 12, 13, 14]])
    packed = PackedRow.of(2, [3, 2, 3])

    def hidden(rows: torch.Tensor) -> torch.Tensor:
        inputs = packed.pack(rows, rows)
        assert inputs.pop("shift_labels")[0].tolist() == [
            -100,
            *rows[0, 2:].tolist(),
            *rows[1, 2:4].tolist(),
            *rows[2, 2:].tolist(),
        ]
        return model.model(**inputs, packed=packed).last_hidden_state[0]

    before = hidden(rows)
    alone = model.model(input_ids=rows[2:]).last_hidden_state[0, 1:4]
    torch.testing.assert_close(before[-3:], alone, rtol=1e-5, atol=1e-6)
    other_answer = rows.clone()
    other_prompt = rows.clone()
    other_answer[0, 2], other_prompt[:, 0] = 20, 20
    torch.testing.assert_close(hidden(other_answer)[-3:], before[-3:], rtol=0, atol=0)
    assert (hidden(other_prompt)[-3:] - before[-3:]).abs().max() > 1e-3


def test_gradients_of_answers_that_attend_together_are_exact():
    """In double precision, with answers of different lengths, an empty one among them."""
    torch.manual_seed(0)
    answers = (3, 0, 1, 5)
    given = [
        torch.randn(1, 2, n, 8, dtype=torch.float64, requires_grad=True) for n in (9, 9, 9, 7, 7)
    ]
    assert torch.autograd.gradcheck(
        lambda *t: shared_prompts.AttendTogether.apply(*t, answers, 0.5), given
    )


def test_settings_that_cannot_share_prompts_are_refused():
    for wrong in ({"micro_batch_size": 2}, {"attention": "eager"}, {"loss_type": "bnpo"}):
        with pytest.raises(
            ValueError, match=f"shared_prompt_tokens is given, so {next(iter(wrong))} must be"
        ):
            GRPOSettings(**{**SHARED, **wrong})


def test_layers_with_a_sliding_window_are_refused(tmp_path, folder):
    sliding = AutoModelForCausalLM.from_pretrained(folder / "policy")
    sliding.config.layer_types = ["full_attention", "sliding_attention"]
    sliding.save_pretrained(tmp_path / "sliding")
    with pytest.raises(ValueError, match="prompts can be shared by full attention only"):
        update(tmp_path, folder, shared_rows(folder), policy=tmp_path / "sliding", settings=SHARED)
