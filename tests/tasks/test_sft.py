"""Supervised updates: chosen groups of stored rollouts, and the log-likelihood of what was
sampled in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.sft import sft
from tasks.training.grpo import GRPOSettings
from tests.support.grpo_jobs import SETTINGS, difference, make_models, make_rows, update
from tests.support.reference_grpo import load, scorer
from tests.support.rows import publish, row, turn


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def cross_entropy_update(
    folder: Path, rows: list[dict], k: int, mean_of_means: bool
) -> tuple[dict, list[float]]:
    """k steps of AdamW on the cross-entropy of the sampled tokens; returns the parameters and
    the losses."""
    model = load(folder / "policy")
    score = scorer(model)
    losses = []
    adam = torch.optim.AdamW(
        model.parameters(), SETTINGS["learning_rate"], eps=SETTINGS["adam_epsilon"], weight_decay=0
    )
    for part in range(k):
        found = []
        for given in rows[part * len(rows) // k : (part + 1) * len(rows) // k]:
            start = len(given["prompt_token_ids"]) - 1
            logps = score(given["prompt_token_ids"] + given["completion_token_ids"])[start:]
            found.append(-logps[torch.tensor(given["loss_mask"]) == 1])
        value = (
            torch.stack([f.mean() for f in found]).mean()
            if mean_of_means
            else torch.cat(found).mean()
        )
        adam.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(value.item())
    return {name: value.detach() for name, value in model.named_parameters()}, losses


@pytest.mark.parametrize(("loss_type", "k"), [("dapo", 1), ("dapo", 4), ("grpo", 2)])
def test_parameters_change_as_by_cross_entropy_whatever_was_stored_as_log_probability(
    tmp_path, folder, loss_type, k
):
    rows = [
        {**given, "advantage": 1.0} for given in make_rows(folder / "policy", "tools", drift=0.8)
    ]
    settings = {
        "objective": "likelihood",
        "beta": 0.0,
        "optimizer_steps": k,
        "loss_type": loss_type,
    }
    result = update(tmp_path, folder, rows, settings=settings)
    theirs, losses = cross_entropy_update(folder, rows, k, mean_of_means=loss_type == "grpo")
    assert difference(folder, result, theirs) < 1e-5
    assert [step.loss for step in result.steps] == pytest.approx(losses, rel=1e-5)
    assert [step.policy_loss for step in result.steps] == [step.loss for step in result.steps]


def test_a_row_of_weight_2_counts_twice(tmp_path, folder):
    one, other = make_rows(folder / "policy", n=2)
    weighed = [{**one, "advantage": 2.0}, {**other, "advantage": 1.0}]
    twice = [{**one, "advantage": 1.0}, {**one, "advantage": 1.0}, {**other, "advantage": 1.0}]
    s = {"objective": "likelihood", "beta": 0.0, "loss_type": "dr_grpo", "max_grad_norm": 0.0}
    # 2 * 30 = 3 * 20: equal denominators
    two, three = ({**s, "max_completion_tokens": most} for most in (30, 20))
    ours = update(tmp_path, folder, weighed, "weighed", settings=two)
    theirs = update(tmp_path, folder, twice, "twice", settings=three)
    assert [s.loss for s in ours.steps] == pytest.approx([s.loss for s in theirs.steps], rel=1e-6)


def test_a_supervised_update_has_no_kl_term():
    with pytest.raises(ValueError, match=r"set beta to 0, not 0\.1"):
        GRPOSettings(objective="likelihood", beta=0.1)


# ---- which rows are trained on ----


def said(name: str, prompt: str, sample: int = 0, tokens: int = 1) -> dict:
    ids = {"sampled_token_ids": [2] * tokens, "logprobs": [-0.5] * tokens}
    return row(
        "rollouts", rollout_id=name, prompt_id=prompt, sample=sample, turns=[turn("x", **ids)]
    )


def group(name: str, kept: bool) -> dict:
    return row("groups", group_id=name, kept=kept, bounds="{}", reason=None if kept else "no")


def test_every_rollout_of_a_kept_group_is_learnt_with_the_same_weight_and_no_other(place):
    one = publish(place, "rollouts", said("a", "p"), said("b", "p", 1), said("c", "q"), label="one")
    two = publish(place, "rollouts", said("d", "r"), label="two")
    chosen = publish(place, "groups", group("p", True), group("q", False), group("r", True))
    found = sft(place, [one, two], chosen).rows()
    assert [(d["rollout_id"], d["advantage"], d["loss_mask"]) for d in found] == [
        ("a", 1.0, [1]),
        ("b", 1.0, [1]),
        ("d", 1.0, [1]),
    ]


def test_of_a_reply_that_was_asked_for_again_the_last_counts_and_a_long_one_is_left_out(place):
    rollouts = publish(
        place, "rollouts", said("a", "p"), said("long", "q", tokens=4), said("again", "p")
    )
    chosen = publish(place, "groups", group("p", True), group("q", True))
    assert [d["rollout_id"] for d in sft(place, rollouts, chosen, max_tokens=4).rows()] == ["again"]
