"""Which rows of a batch an update computes, in which order, and what its denominators count."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.training.datums import plan
from tasks.training.stored_rollouts import StoredRolloutsTrainer
from tests.support.grpo_jobs import difference, make_models, make_rows, stored, torch_update, update
from tests.support.reference_grpo import weights


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def test_padding_an_odd_batch_changes_no_denominator(tmp_path, folder):
    """Seven datums in micro-batches of three leave two rows of no weight: the same update as in
    one of seven."""
    rows = make_rows(folder / "policy", n=7)
    for loss_type, sizes in {"grpo": (3, 16), "dapo": (3,), "dr_grpo": (3,)}.items():
        s = {"loss_type": loss_type, "max_completion_tokens": 20, "beta": 0.5}
        theirs, _ = torch_update(folder, [rows], **s)
        for size in sizes:
            result = update(
                tmp_path,
                folder,
                rows,
                f"{loss_type}-{size}",
                settings={**s, "micro_batch_size": size},
            )
            assert difference(folder, result, theirs) < 1e-5


def test_zero_advantages_without_kl_leave_the_parameters_alone(tmp_path, folder):
    rows = [{**row, "advantage": 0.0} for row in make_rows(folder / "policy")]
    result = update(tmp_path, folder, rows, settings={"beta": 0.0})
    assert all(
        torch.equal(v, weights(result.policy)[k]) for k, v in weights(folder / "policy").items()
    )
    assert result.steps[0].grad_norm == 0


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_datums_of_advantage_0_are_counted_but_not_computed(
    tmp_path, folder, monkeypatch, loss_type
):
    """Three of eight have advantage 0: the gradient equals that of all eight, and is computed
    from five."""
    rows = make_rows(folder / "policy", "tools")
    rows = [{**row, "advantage": 0.0} if i in (0, 3, 7) else row for i, row in enumerate(rows)]
    seen = []
    score = StoredRolloutsTrainer._get_per_token_logps_and_entropies

    def watched(self, model, ids, *given, **named):
        seen.extend([len(ids)] * torch.is_grad_enabled())  # later scoring is without gradients
        return score(self, model, ids, *given, **named)

    monkeypatch.setattr(StoredRolloutsTrainer, "_get_per_token_logps_and_entropies", watched)
    s = {"loss_type": loss_type, "beta": 0.0, "max_completion_tokens": 20, "micro_batch_size": 1}
    result = update(tmp_path, folder, rows, settings=s)
    assert difference(folder, result, torch_update(folder, [rows], **s)[0]) < 1e-5
    assert seen == [1] * 5
    [step] = result.steps
    assert (step.num_datums, step.num_skipped) == (8, 3)
    assert step.num_tokens == sum(sum(row["loss_mask"]) for row in rows)


def test_an_optimizer_step_of_zero_advantages_leaves_its_means_unknown(tmp_path, folder):
    """Two steps of four datums, the second all zero: it has no gradient and no measured ratio."""
    rows = [
        {**r, "advantage": r["advantage"] * (i < 4)}
        for i, r in enumerate(make_rows(folder / "policy"))
    ]
    first, second = update(
        tmp_path, folder, rows, settings={"beta": 0.0, "optimizer_steps": 2}
    ).steps
    assert (first.num_skipped, second.num_skipped) == (0, 4)
    assert first.grad_norm > 0
    assert (second.grad_norm, second.mean_ratio, second.entropy, second.clip_fraction) == (
        0,
        None,
        None,
        None,
    )


def test_the_longest_rows_of_a_step_come_first(tmp_path, folder):
    """A row that does not fit in memory must fail before an hour is spent."""
    datums = stored(tmp_path, make_rows(folder / "policy", n=9))
    [first, second] = plan(
        datums, optimizer_steps=2, micro_batch_size=2, num_processes=2, by_length=True
    ).rows
    for step, members in ((first, range(5)), (second, range(5, 9))):
        order = [i for micro in step for rows in micro for i in rows]
        lengths = sorted((int(datums.lengths[i]) for i in members), reverse=True)
        assert [int(datums.lengths[i]) for i in order if i >= 0] == lengths
