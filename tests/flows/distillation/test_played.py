"""A student distilled from a teacher on a real engine and trainer.

The teacher is a built-in model, and the student that model with noise on its weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from flows.app.command.distil import distilled_as
from flows.distillation.flow import distillation_update
from flows.runtime.request import Request
from flows.runtime.store_root import WORKSPACE, open_store
from flows.ttrl.flow import ttrl_iteration
from tests.support.machines import shared_machines
from warehouse.query import query
from warehouse.store import Store

pytestmark = pytest.mark.slow

TEACHER = WORKSPACE / "data/micro/spice"
TTRL = {
    "iterations": 1,
    "steps": 1,
    "questions_per_step": 64,
    "group_size": 2,
    "num_engines": 1,
    "evaluation.num_tasks": 8,
    "monitor.max_gate_leak": None,
}
DISTANCE = """
    select iteration, n, score from evaluations
    where run = 'distilled' and metric = 'reverse_kl' order by iteration
"""
SCORED = """
    select count(*) as n from reference_logprobs
    join rollouts using (run, rollout_id) join prompts using (run, prompt_id)
    where run = 'distilled'
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with TTRL's run `mine`, whose solver was asked 64 questions."""
    folder = tmp_path_factory.mktemp("site") / "store"
    with pytest.MonkeyPatch.context() as patch, shared_machines():
        patch.setenv("SELFPLAY_STORE", str(folder))
        ttrl_iteration.run(
            Request(flow="ttrl-iteration", profile="micro", run="mine", overrides=TTRL)
        )
        yield open_store()


def noisy(folder: Path) -> Path:
    """The teacher with noise on its weights, in a folder."""
    shutil.copytree(TEACHER, folder)
    generator = torch.Generator().manual_seed(0)
    weights = load_file(folder / "model.safetensors")
    for weight in weights.values():
        noise = torch.randn(weight.shape, generator=generator) * 0.2 * weight.std().nan_to_num(0)
        weight.add_(noise.to(weight.dtype))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_the_student_comes_closer_to_the_teacher_on_held_out_prompts(store, tmp_path):
    overrides = distilled_as("mine", str(TEACHER), "solver", "base")
    overrides["models"]["base"] = str(noisy(tmp_path / "student"))
    overrides["engine"]["model"] = overrides["models"]["base"]
    overrides |= {"held_out": 0.4, "group_size": 4, "iterations": 2, "rows_per_step": 32}
    request = Request(
        flow=distillation_update.name, profile="micro", run="distilled", overrides=overrides
    )
    distillation_update.run(request)
    distances = query(store.root, DISTANCE)
    print(distances)
    assert [row["iteration"] for row in distances] == [0, 1, 2]
    assert distances[0]["n"] >= 16
    before, _, after = (row["score"] for row in distances)
    assert after < 0.7 * before
    [scored] = query(store.root, SCORED)
    assert scored["n"] > 100  # every score belongs to a rollout and its prompt
    steps = query(
        store.root, "select metrics from updates where run = 'distilled' order by iteration"
    )
    assert all("teacher_gap" in row["metrics"] for row in steps)


def test_what_the_student_starts_from_cannot_teach_it(store):
    overrides = distilled_as("mine", str(TEACHER), "solver", "base")
    request = Request(
        flow=distillation_update.name, profile="micro", run="itself", overrides=overrides
    )
    with pytest.raises(ValueError, match="is what the student starts from"):
        distillation_update.run(request)
