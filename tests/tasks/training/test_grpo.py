"""The update stage changes parameters as plain torch does, from stored rollouts, and refuses bad
ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tasks.training.grpo import GRPOSettings, LoRASettings, NonFiniteUpdateError, UpdateJob
from tasks.training.stored_rollouts import StoredRolloutsTrainer
from tests.support.grpo_jobs import (
    SETTINGS,
    VOCAB,
    difference,
    make_models,
    make_rows,
    torch_update,
    update,
)
from tests.support.reference_grpo import (
    load,
    lora_scorer,
    relative_difference,
    run,
    scorer,
    weights,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


CASES = [
    (loss_type, kind, beta, k)
    for loss_type in ("grpo", "dapo", "dr_grpo", "bnpo")
    for kind, beta, k in [
        ("plain", 0.0, 1),
        ("tools", 0.5, 1),
        ("turns", 0.5, 2),
        ("tools", 0.0, 4),
        ("plain", 0.5, 4),
    ]
]


@pytest.mark.parametrize(("loss_type", "kind", "beta", "k"), CASES)
def test_parameters_change_as_in_plain_torch(
    tmp_path, folder, loss_type, kind, beta, k, record_property
):
    rows = make_rows(folder / "policy", kind)
    s = {"loss_type": loss_type, "beta": beta, "optimizer_steps": k, "max_completion_tokens": 20}
    result = update(tmp_path, folder, rows, settings=s)
    theirs, losses = torch_update(folder, [rows], **s)
    record_property("relative_difference", difference(folder, result, theirs))
    assert difference(folder, result, theirs) < 1e-5
    assert [step.loss for step in result.steps] == pytest.approx(losses, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "s",
    [
        {"dual_clip": 1.5, "beta": 0.0},
        {"dual_clip": None, "beta": 0.0},
        {"use_bias_correction_kl": True, "beta": 0.5},
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"temperature": 0.7, "beta": 0.5},
        {"max_grad_norm": 0.05},
        {"adam_epsilon": 1e-8, "adam_beta1": 0.8, "adam_beta2": 0.95},
        {"max_grad_norm": 0.0, "epsilon_low": 0.1, "epsilon_high": 0.28},
        {"gradient_checkpointing": True, "attention": "eager"},
        {"entropy_coef": 0.3, "beta": 0.0},
        {"entropy_coef": 0.3, "loss_type": "grpo", "temperature": 0.7, "beta": 0.5},
        {"entropy_coef": 0.3, "loss_type": "dr_grpo", "max_completion_tokens": 20, "beta": 0.0},
        {"entropy_coef": 0.3, "loss_type": "bnpo", "beta": 0.0},
    ],
    ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()),
)
def test_every_setting_of_the_loss_acts_as_in_plain_torch(tmp_path, folder, s, record_property):
    rows = make_rows(folder / "policy", "tools", drift=0.8)
    theirs, _ = torch_update(folder, [rows], **s)
    found = difference(folder, update(tmp_path, folder, rows, settings=s), theirs)
    record_property("relative_difference", found)
    assert found < 1e-5


def test_dual_clip_bounds_a_token_whose_ratio_exploded(tmp_path, folder):
    """One sampled token, log pi = l, stored l - 2 (rho = e^2 = 7.39), A = -1: the loss is 3;
    7.39 without dual clip."""
    [row] = make_rows(folder / "policy", n=1, drift=0.0)
    row["loss_mask"] = [1] + [0] * (len(row["loss_mask"]) - 1)
    row["logprobs"] = [row["logprobs"][0] - 2] + [0.0] * (len(row["loss_mask"]) - 1)
    row["advantage"] = -1.0
    bounded = update(tmp_path, folder, [row], "bounded", settings={"beta": 0.0})
    unbounded = update(
        tmp_path, folder, [row], "unbounded", settings={"beta": 0.0, "dual_clip": None}
    )
    assert bounded.steps[0].loss == pytest.approx(3.0, rel=1e-5)
    assert unbounded.steps[0].loss == pytest.approx(7.389056, rel=1e-5)
    assert bounded.steps[0].mean_ratio == pytest.approx(7.389056, rel=1e-5)
    assert (bounded.steps[0].sampler_far, bounded.steps[0].sampler_furthest) == (
        1.0,
        pytest.approx(2.0, rel=1e-5),
    )


def test_the_loss_is_the_policy_loss_less_the_entropy_bonus(tmp_path, folder):
    """In `dapo` the bonus is the mean over all sampled tokens. Datums of advantage 0 have one,
    too, so they are computed."""
    rows = make_rows(folder / "policy", "tools")
    rows[0]["advantage"] = 0.0
    s = {"beta": 0.0, "loss_type": "dapo"}
    (with_bonus,) = update(
        tmp_path, folder, rows, "with", settings={**s, "entropy_coef": 0.3}
    ).steps
    (without,) = update(tmp_path, folder, rows, "without", settings=s).steps
    assert (with_bonus.num_skipped, without.num_skipped) == (0, 1)
    assert with_bonus.policy_loss == pytest.approx(without.loss, rel=1e-4, abs=1e-6)
    bonus = with_bonus.policy_loss - with_bonus.loss
    assert bonus == pytest.approx(0.3 * with_bonus.entropy, rel=1e-4)


def test_only_the_clipped_objective_has_an_entropy_bonus():
    with pytest.raises(ValueError, match="has no entropy bonus: set entropy_coef to 0"):
        GRPOSettings(objective="likelihood", beta=0.0, entropy_coef=0.1)


def test_on_policy_rho_is_1_and_the_stored_log_probabilities_only_measure(tmp_path, folder):
    stored, exact = (make_rows(folder / "policy", drift=drift) for drift in (0.3, 0.0))
    s = {"beta": 0.0, "loss_type": "dapo"}
    result = update(tmp_path, folder, stored, settings={**s, "on_policy": True, "dual_clip": None})
    theirs, _ = torch_update(folder, [exact], **s)
    assert difference(folder, result, theirs) < 1e-5
    assert abs(result.steps[0].mean_ratio - 1) > 5e-4


def test_metrics_of_a_step_are_token_means(tmp_path, folder):
    """All ratios are e^0.5 = 1.649: three tokens with A = 1 are clipped at 1.2, two with A = -1 are
    not and cost 1.649."""
    up, down = make_rows(folder / "policy", n=2, drift=0.0)
    for row, advantage, tokens in ((up, 1.0, 3), (down, -1.0, 2)):
        row["advantage"] = advantage
        row["loss_mask"] = [1] * tokens + [0] * (len(row["loss_mask"]) - tokens)
        row["logprobs"] = [
            (p - 0.5) * m for p, m in zip(row["logprobs"], row["loss_mask"], strict=True)
        ]
    [step] = update(
        tmp_path, folder, [up, down], settings={"micro_batch_size": 1, "beta": 0.0}
    ).steps
    assert (step.num_datums, step.num_tokens, step.kl) == (2, 5, None)
    assert step.mean_ratio == pytest.approx(1.648721, rel=1e-5)
    assert (step.sampler_kl, step.sampler_furthest) == (
        pytest.approx(0.148721, rel=1e-4),
        pytest.approx(0.5, rel=1e-4),
    )
    assert step.sampler_far == 0.0
    assert (step.clip_fraction, step.clip_fraction_high, step.clip_fraction_low) == (
        pytest.approx(0.6),
        0.6,
        0.0,
    )
    assert step.loss == step.policy_loss == pytest.approx((-3 * 1.2 + 2 * 1.648721) / 5, rel=1e-5)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo", "bnpo"])
def test_the_loss_is_the_policy_loss_plus_beta_times_kl(tmp_path, folder, loss_type):
    rows = make_rows(folder / "policy", "tools", n=7)
    s = {"loss_type": loss_type, "max_completion_tokens": 20}
    [with_kl] = update(tmp_path, folder, rows, "with", settings={"beta": 0.5, **s}).steps
    [without] = update(tmp_path, folder, rows, "without", settings={"beta": 0.0, **s}).steps
    assert with_kl.kl > 0.01
    assert with_kl.policy_loss == pytest.approx(without.loss, rel=1e-4, abs=1e-6)
    if loss_type == "dapo":
        assert with_kl.loss - with_kl.policy_loss == pytest.approx(0.5 * with_kl.kl, rel=1e-4)


@pytest.mark.parametrize(
    "how", [{}, {"on_policy": True}, {"importance_sampling_level": "sequence"}], ids=str
)
def test_the_factor_of_the_kl_is_in_the_loss_and_not_in_the_kl(tmp_path, folder, how):
    rows = make_rows(folder / "policy", "tools", n=7, drift=0.8)
    s = {"loss_type": "dapo", "dual_clip": None, **how}
    [plain] = update(tmp_path, folder, rows, "plain", settings={"beta": 0.5, **s}).steps
    corrected = {"beta": 0.5, "use_bias_correction_kl": True, **s}
    [with_kl] = update(tmp_path, folder, rows, "with", settings=corrected).steps
    [without] = update(tmp_path, folder, rows, "without", settings={"beta": 0.0, **s}).steps
    assert with_kl.policy_loss == pytest.approx(without.loss, rel=1e-4, abs=1e-6)
    assert with_kl.kl == plain.kl > 0.01
    is_same_loss = with_kl.loss == pytest.approx(plain.loss, rel=1e-4)
    assert is_same_loss == (how == {"on_policy": True})


@pytest.mark.parametrize("objective", ["likelihood", "preference"])
def test_distances_from_the_sampler_are_not_measured_where_they_mean_nothing(
    tmp_path, folder, objective
):
    """Given replies have log-probabilities of 0, and replies of preferences may be older."""
    [row] = make_rows(folder / "policy", n=1)
    rows = [{**row, "logprobs": [0.0] * len(row["logprobs"]), "advantage": a} for a in (1.0, -1.0)]
    s = {"objective": objective, "beta": 0.0, "micro_batch_size": 2}
    if objective == "preference":
        s["beta"] = 0.1
    [step] = update(tmp_path, folder, rows, settings=s).steps
    measured = (step.mean_ratio, step.sampler_kl, step.sampler_far, step.sampler_furthest)
    assert measured == (None, None, None, None)


def test_kl_is_measured_against_the_reference_folder_not_the_policy(tmp_path, folder):
    rows = make_rows(folder / "policy")
    [moved] = update(tmp_path, folder, rows, "moved", settings={"beta": 0.5}).steps
    [same] = update(
        tmp_path, folder, rows, "same", reference=folder / "policy", settings={"beta": 0.5}
    ).steps
    assert moved.kl > 0.01
    assert same.kl == pytest.approx(0, abs=1e-9)


def test_a_token_of_mask_0_is_context_only(tmp_path, folder):
    rows = make_rows(folder / "policy", "tools")
    changed = [{**row, "logprobs": [p or -9.0 for p in row["logprobs"]]} for row in rows]
    first, second = (update(tmp_path, folder, r, n) for r, n in ((rows, "a"), (changed, "b")))
    assert all(torch.equal(v, weights(second.policy)[k]) for k, v in weights(first.policy).items())


def test_optimizer_state_carries_over_from_update_to_update(tmp_path, folder, record_property):
    batches = [make_rows(folder / "policy", seed=s) for s in (1, 2, 3)]
    result = update(tmp_path, folder, batches[0], "0")
    for i in (1, 2):
        result = update(
            tmp_path,
            folder,
            batches[i],
            str(i),
            policy=result.policy,
            optimizer_state=result.optimizer_state,
        )
    theirs, _ = torch_update(folder, batches)
    record_property("relative_difference", difference(folder, result, theirs))
    assert difference(folder, result, theirs) < 1e-5


def test_a_carried_optimizer_takes_the_learning_rate_of_the_new_job(tmp_path, folder):
    first = update(tmp_path, folder, make_rows(folder / "policy"), "0")
    carried = {
        "policy": first.policy,
        "optimizer_state": first.optimizer_state,
        "settings": {"learning_rate": 0.0},
    }
    second = update(tmp_path, folder, make_rows(folder / "policy", seed=1), "1", **carried)
    assert second.steps[0].learning_rate == 0
    assert all(torch.equal(v, weights(second.policy)[k]) for k, v in weights(first.policy).items())


def test_an_adapter_trains_resumes_and_keeps_the_base_as_reference(
    tmp_path, folder, record_property
):
    """A new adapter, then resumed with its optimizer: equals one AdamW over both, with KL against
    the base alone and the base unchanged."""
    lora = LoRASettings(rank=4, alpha=8)
    s = {"lora": lora, "beta": 0.5, "learning_rate": 1e-2}
    base = {"policy": folder / "base"}
    batches = [make_rows(folder / "base", "tools", seed=i) for i in (1, 2)]
    start = update(
        tmp_path, folder, batches[0], "start", **base, settings={**s, "learning_rate": 0.0}
    )
    first = update(tmp_path, folder, batches[0], "first", **base, settings=s)
    again = {**base, "adapter": first.policy, "optimizer_state": first.optimizer_state}
    second = update(tmp_path, folder, batches[1], "second", **again, settings=s)

    name = "adapter_model.safetensors"
    before = weights(start.policy, name)
    model = load(folder / "base")
    theirs = {k: v.clone().requires_grad_() for k, v in before.items()}
    run(
        theirs.values(),
        lora_scorer(model, theirs, 8 / 4),
        scorer(model),
        batches,
        GRPOSettings(**{**SETTINGS, **s}),
    )
    found = relative_difference(
        before, weights(second.policy, name), {k: v.detach() for k, v in theirs.items()}
    )
    record_property("relative_difference", found)
    assert found < 1e-5
    assert first.steps[0].kl == pytest.approx(0, abs=1e-9)
    assert second.steps[0].kl > 1e-4


def test_a_policy_folder_is_whole_and_its_weights_are_float32(tmp_path, folder):
    result = update(tmp_path, folder, make_rows(folder / "policy"))
    files = {f.name for f in result.policy.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= files
    assert "training_args.bin" not in files
    config = json.loads((folder / "policy" / "config.json").read_text())
    assert json.loads((result.policy / "config.json").read_text()) == {**config, "dtype": "float32"}
    assert (result.policy / "tokenizer.json").read_bytes() == (
        folder / "policy" / "tokenizer.json"
    ).read_bytes()
    assert {v.dtype for v in weights(result.policy).values()} == {torch.float32}
    assert UpdateJob.model_validate_json(
        UpdateJob(
            batch=tmp_path, policy=tmp_path, reference=tmp_path, out=tmp_path
        ).model_dump_json()
    )


def test_bfloat16_and_float32_jobs_follow_each_other_in_one_process(tmp_path, folder):
    rows = make_rows(folder / "policy")
    half = update(tmp_path, folder, rows, "half", settings={"dtype": "bfloat16"})
    full = update(tmp_path, folder, rows, "full")
    assert {v.dtype for v in weights(half.policy).values()} == {torch.float32}
    assert half.steps[0].loss == pytest.approx(full.steps[0].loss, abs=0.02)
    assert difference(folder, full, torch_update(folder, [rows])[0]) < 1e-5


def test_a_nan_stops_the_update_before_anything_is_written(tmp_path, folder):
    broken = load(folder / "policy")
    with torch.no_grad():
        broken.model.embed_tokens.weight[7] = float("nan")
    broken.save_pretrained(tmp_path / "broken")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "broken" / name).write_bytes((folder / "policy" / name).read_bytes())
    rows = make_rows(folder / "policy")
    with pytest.raises(NonFiniteUpdateError, match="nothing was written") as stopped:
        update(tmp_path, folder, rows, policy=tmp_path / "broken")
    assert stopped.value.step == 1
    assert set(stopped.value.rollout_ids) <= {row["rollout_id"] for row in rows}
    assert stopped.value.rollout_ids
    assert not list((tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}], ids=["full weights", "adapter"])
def test_a_killed_update_goes_on_from_its_last_optimizer_step(tmp_path, folder, monkeypatch, lora):
    rows = make_rows(folder / "policy", n=12)
    settings = {"optimizer_steps": 4, "beta": 0.5, "lora": lora}
    reference = {"reference": folder / ("policy" if lora else "base")}
    whole = update(tmp_path, folder, rows, "whole", **reference, settings=settings)
    kept = {
        "checkpoints": tmp_path / "kept",
        "checkpoint_s": 0.0,
        "settings": settings,
        **reference,
    }

    def killed(self, logs, *_):
        log(self, logs)
        if len(self.steps) == 3:
            raise KeyboardInterrupt

    log = StoredRolloutsTrainer.log
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(StoredRolloutsTrainer, "log", killed)
        update(tmp_path, folder, rows, "killed", **kept)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["step-000003"]
    resumed = update(tmp_path, folder, rows, "resumed", **kept)
    assert [s.step for s in resumed.steps] == [1, 2, 3, 4]
    for name in ("loss", "kl", "grad_norm"):
        for one, other in zip(resumed.steps, whole.steps, strict=True):
            assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-5)
    weights = "adapter_model.safetensors" if lora else "model.safetensors"
    ours, theirs = (load_file(r.policy / weights) for r in (resumed, whole))
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-5, atol=1e-7)


def _bad(name, value):
    return lambda row: {**row, name: value(row[name])}


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (_bad("completion_token_ids", lambda ids: [*ids, 3]), r"rollout r5 .*must be as many"),
        (_bad("logprobs", lambda ps: ps[1:]), r"rollout r5 .*must be as many"),
        (_bad("prompt_token_ids", lambda ids: ids * 40), r"rollout r5 .*context of 64"),
        (_bad("prompt_token_ids", lambda ids: [VOCAB, *ids]), r"rollout r5 .*vocabulary of 48"),
        (_bad("prompt_token_ids", lambda ids: []), r"rollout r5 .*prompt is empty"),
        (_bad("loss_mask", lambda mask: [2, *mask[1:]]), r"rollout r5 .*loss_mask"),
        (_bad("logprobs", lambda ps: [float("nan"), *ps[1:]]), r"rollout r5 .*log-probabilities"),
        (_bad("logprobs", lambda ps: [0.5, *ps[1:]]), r"rollout r5 .*log-probabilities"),
        (_bad("advantage", lambda a: float("inf")), r"rollout r5 .*advantage is inf"),
    ],
)
def test_a_bad_row_is_named_before_training(tmp_path, folder, spoil, complaint):
    rows = make_rows(folder / "policy")
    rows[5] = spoil(rows[5])
    with pytest.raises(ValueError, match=complaint):
        update(tmp_path, folder, rows)


def test_a_bad_job_is_refused_with_the_way_out(tmp_path, folder):
    rows = make_rows(folder / "policy")
    with pytest.raises(ValueError, match="batch is empty"):
        update(tmp_path, folder, [])
    with pytest.raises(ValueError, match="cannot make 9 optimizer steps"):
        update(tmp_path, folder, rows, settings={"optimizer_steps": 9})
    with pytest.raises(ValueError, match=r"reference .*no such folder"):
        update(tmp_path, folder, rows, reference=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="train the adapter on the reference"):
        update(tmp_path, folder, rows, settings={"lora": LoRASettings(), "beta": 0.1})
    with pytest.raises(ValueError, match="loss_mask is 0 everywhere"):
        update(tmp_path, folder, [{**r, "loss_mask": [0] * len(r["loss_mask"])} for r in rows])
    with pytest.raises(ValueError, match="max_completion_tokens"):
        GRPOSettings(loss_type="dr_grpo")
    with pytest.raises(ValueError, match="learning_rte"):
        GRPOSettings(learning_rte=1e-6)
    update(tmp_path, folder, rows)
    with pytest.raises(ValueError, match="not empty"):
        update(tmp_path, folder, rows)
