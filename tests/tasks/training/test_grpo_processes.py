"""Two processes make the same update as one: with whole weights in each, and with sharded
weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.training.grpo import GRPOSettings, UpdateJob
from tests.support.grpo_jobs import SETTINGS, make_models, make_rows, update
from tests.support.reference_grpo import relative_difference, weights

REPO = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


@pytest.mark.slow
def test_two_processes_make_the_update_of_one(tmp_path, folder, record_property):
    """Five datums, k = 2: the processes get unequal shares; the second update continues from the
    first one's state."""
    s = {"beta": 0.5, "optimizer_steps": 2, "micro_batch_size": 1, "loss_type": "grpo"}
    batches = [make_rows(folder / "policy", "tools", n=5, seed=i) for i in (1, 2)]
    job = {"policy": folder / "policy"}
    for i, rows in enumerate(batches):
        one = update(tmp_path, folder, rows, f"one{i}", settings=s, **job)
        job = {"policy": one.policy, "optimizer_state": one.optimizer_state}
    job = {"policy": folder / "policy"}
    for i in range(2):
        settings = GRPOSettings(**{**SETTINGS, **s})
        paths = {
            "batch": tmp_path / f"one{i}.parquet",
            "reference": folder / "base",
            "out": tmp_path / f"two{i}",
        }
        spec = UpdateJob(settings=settings, **paths, **job)
        two = run_distributed(spec, tmp_path / f"job{i}.json")
        job = {"policy": Path(two["policy"]), "optimizer_state": Path(two["optimizer_state"])}
    found = relative_difference(
        weights(folder / "policy"), weights(job["policy"]), weights(one.policy)
    )
    record_property("relative_difference", found)
    assert found < 1e-5
    for ours, theirs in zip(two["steps"], one.steps, strict=True):
        for name in (
            "loss",
            "policy_loss",
            "kl",
            "entropy",
            "mean_ratio",
            "clip_fraction",
            "grad_norm",
            "num_tokens",
        ):
            assert ours[name] == pytest.approx(getattr(theirs, name), rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_two_processes_make_the_adapter_of_one(tmp_path, folder, record_property):
    """What several GPUs do with an adapter (DDP): each holds the base, which is the KL reference
    with the adapter off."""
    s = {"beta": 0.5, "optimizer_steps": 2, "micro_batch_size": 1, "gradient_checkpointing": True}
    s |= {"lora": {"rank": 4, "alpha": 8}}
    base = {"policy": folder / "base", "reference": folder / "base"}
    start = update(
        tmp_path,
        folder,
        make_rows(folder / "base", n=2),
        "start",
        settings={**s, "learning_rate": 0},
        **base,
    )
    alone = both = {"adapter": start.policy}
    for i in (1, 2):
        one = update(
            tmp_path,
            folder,
            make_rows(folder / "base", n=5, seed=i),
            f"one{i}",
            settings=s,
            **base,
            **alone,
        )
        alone = {"adapter": one.policy, "optimizer_state": one.optimizer_state}
        places = {"batch": tmp_path / f"one{i}.parquet", "out": tmp_path / f"two{i}"}
        spec = UpdateJob(settings=GRPOSettings(**{**SETTINGS, **s}), **places, **base, **both)
        two = run_distributed(spec, tmp_path / f"job{i}.json")
        both = {"adapter": Path(two["policy"]), "optimizer_state": Path(two["optimizer_state"])}
    adapters = [weights(where, ADAPTER) for where in (start.policy, both["adapter"], one.policy)]
    found = relative_difference(*adapters)
    record_property("relative_difference", found)
    assert found < 1e-5
    for ours, theirs in zip(two["steps"], one.steps, strict=True):
        for name in ("loss", "kl", "entropy", "grad_norm"):
            assert ours[name] == pytest.approx(getattr(theirs, name), rel=1e-4, abs=1e-6), name


@pytest.mark.slow
def test_two_processes_with_sharded_weights_make_the_update_of_one(
    tmp_path, folder, record_property
):
    """What several GPUs do with full weights (FSDP2), on CPUs; the second update continues from
    the first's state."""
    s = {"beta": 0.5, "optimizer_steps": 2, "micro_batch_size": 1, "gradient_checkpointing": True}
    alone = sharded = {"policy": folder / "policy"}
    for i in (1, 2):
        one = update(
            tmp_path,
            folder,
            make_rows(folder / "policy", n=5, seed=i),
            f"one{i}",
            settings=s,
            **alone,
        )
        alone = {"policy": one.policy, "optimizer_state": one.optimizer_state}
        paths = {
            "batch": tmp_path / f"one{i}.parquet",
            "reference": folder / "base",
            "out": tmp_path / f"two{i}",
        }
        spec = UpdateJob(settings=GRPOSettings(**{**SETTINGS, **s}), **paths, **sharded)
        two = run_distributed(spec, tmp_path / f"job{i}.json", SHARDED)
        sharded = {name: Path(two[name]) for name in ("policy", "optimizer_state")}
    found = relative_difference(
        weights(folder / "policy"), weights(sharded["policy"]), weights(one.policy)
    )
    record_property("relative_difference", found)
    assert found < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "weights_rel", "rel"), [("float32", 1e-5, 1e-4), ("bfloat16", 0.3, 0.1)]
)
def test_two_processes_share_prompts_with_sharded_weights(
    tmp_path, folder, dtype, weights_rel, rel
):
    """Three rows for two processes: four answers to one prompt, four to another, and three to a
    third. The second process has no row in the last round."""
    s = {"beta": 0.5, "micro_batch_size": 1, "gradient_checkpointing": True, "dtype": dtype}
    one = update(tmp_path, folder, make_rows(folder / "policy", "shared", n=11), settings=s)
    places = {
        "batch": tmp_path / "out.parquet",
        "reference": folder / "base",
        "out": tmp_path / "two",
    }
    shared = GRPOSettings(**{**SETTINGS, **s, "shared_prompt_tokens": 64})
    two = run_distributed(
        UpdateJob(policy=folder / "policy", settings=shared, **places),
        tmp_path / "job.json",
        SHARDED,
    )
    found = relative_difference(
        weights(folder / "policy"), weights(Path(two["policy"])), weights(one.policy)
    )
    assert found < weights_rel
    for name in (
        "loss",
        "kl",
        "entropy",
        "grad_norm",
        "sampler_kl",
        "sampler_furthest",
        "num_datums",
    ):
        assert two["steps"][0][name] == pytest.approx(
            getattr(one.steps[0], name), rel=rel, abs=1e-6
        ), name


@pytest.mark.slow
def test_sharded_bfloat16_does_not_round_log_probabilities(tmp_path, folder):
    """Rounding would change one of -4 by up to 0.008. `cpu_fsdp` fails unless log-probabilities
    come out as float32, and if a layer's output does."""
    s = {"beta": 0.5, "dtype": "bfloat16", "micro_batch_size": 1}
    one = update(tmp_path, folder, make_rows(folder / "policy"), settings=s)
    paths = {
        "batch": tmp_path / "out.parquet",
        "reference": folder / "base",
        "out": tmp_path / "two",
    }
    spec = UpdateJob(policy=folder / "policy", settings=GRPOSettings(**{**SETTINGS, **s}), **paths)
    two = run_distributed(spec, tmp_path / "job.json", SHARDED)
    assert two["steps"][0]["loss"] == pytest.approx(one.steps[0].loss, rel=0.05)


ADAPTER = "adapter_model.safetensors"
TRAINER = ("-m", "tasks.training.trainer")
SHARDED = (str(REPO / "tests" / "support" / "cpu_fsdp.py"),)


def run_distributed(job: UpdateJob, file: Path, program: tuple[str, ...] = TRAINER) -> dict:
    file.write_text(job.model_dump_json())
    launch = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *program,
        str(file),
    ]
    path = {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **path, "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [sys.executable, *launch], cwd=REPO, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((job.out / "result.json").read_text())
