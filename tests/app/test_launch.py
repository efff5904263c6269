"""Launch files ask for the nodes, GPUs and hours of the plan, and start the run that was asked
for."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.launch.files import ACCELERATORS
from flows.app.launch.job import nodes_of
from flows.app.launch.work_pool import RUN_AND_PUSH
from flows.plan.hardware import GPUS
from flows.scope.config import Config
from flows.settings.profile import load

PROFILE = "qwen3-8b-6gpu-lora"


def launched(folder: Path, kind: str, *options: str) -> tuple[Path, str]:
    """The file that the command writes, and what it says."""
    words = ["launch", kind, "scope-iteration", "--profile", PROFILE, "--run", "mine"]
    ended = CliRunner().invoke(cli.main, [*words, "-o", str(folder), *options])
    assert ended.exit_code == 0, ended.output
    (path,) = (path for path in folder.iterdir() if path.name != "Dockerfile")
    return path, ended.output


def settings(**changes: Any) -> Config:
    return load(Config, PROFILE, changes)


@pytest.mark.parametrize(
    ("changes", "num_nodes"),
    [
        ({"num_engines": 6}, 1),
        ({"num_engines": 8}, 1),
        ({"num_engines": 9}, 2),
        ({"num_engines": 16}, 2),
        # three GPUs an engine: two engines on a node of eight
        ({"num_engines": 4, "engine.tensor_parallel": 3}, 2),
        ({"num_engines": 5, "engine.tensor_parallel": 3}, 3),
    ],
)
def test_an_engine_is_on_one_node(changes, num_nodes) -> None:
    assert nodes_of(settings(**changes), gpus_per_node=8) == num_nodes


@pytest.mark.parametrize(
    ("changes", "gpus_per_node", "what"),
    [
        ({"trainer_processes": 16}, 8, "the trainer needs 16 GPUs, a node has 8, and the engines"),
        ({"engine.tensor_parallel": 8, "trainer_processes": 4}, 4, "an engine needs 8 GPUs"),
    ],
)
def test_what_is_larger_than_a_node_is_refused(changes, gpus_per_node, what) -> None:
    with pytest.raises(ValueError, match=what):
        nodes_of(settings(**changes), gpus_per_node)


def test_a_trainer_larger_than_a_node_is_placed_on_the_nodes(tmp_path) -> None:
    sizes = ("--set", "num_engines=16", "--set", "trainer_processes=16", "--hours", "30")
    path, _ = launched(tmp_path, "slurm", *sizes)
    (run,) = (line for line in path.read_text().splitlines() if "selfplay run" in line)
    assert shlex.split(run)[-5:] == [
        *("--set", "engine.place=ray", "--set", "trainer_place=ray", "--here"),
    ]


def test_an_sbatch_script_starts_ray_on_every_node_and_the_run_on_the_first(tmp_path) -> None:
    path, told = launched(
        tmp_path, "slurm", "--set", "num_engines=16", "--hours", "30", "--push", "s3://b/team"
    )
    text = path.read_text()
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    lines = text.splitlines()
    for option in ("--nodes=2", "--gpus-per-node=8", "--time=1-06:00:00", "--exclusive"):
        assert f"#SBATCH {option}" in lines
    assert "--min-nodes 2" in text and "--num-gpus 8" in text
    (run,) = (line for line in lines if line.strip().startswith("selfplay run"))
    assert shlex.split(run)[1:] == [
        *("run", "scope-iteration", "--profile", PROFILE, "--run", "mine"),
        *("--set", "num_engines=16", "--set", "engine.place=ray", "--here"),
    ]
    assert "    selfplay push mine s3://b/team --weights" in lines
    assert "2 node(s) with 8 x h100-80, at most 30 h" in told


def test_one_node_needs_no_ray_and_only_its_own_gpus(tmp_path) -> None:
    path, told = launched(tmp_path, "slurm", "--hours", "1")
    text = path.read_text()
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    assert " ray " not in text and "engine.place" not in text and "--exclusive" not in text
    assert "#SBATCH --gpus-per-node=6" in text.splitlines()
    assert "1 node(s) with 6 x h100-80" in told


def test_a_rayjob_has_a_head_and_the_other_nodes(tmp_path) -> None:
    path, _ = launched(
        tmp_path,
        "kubernetes",
        *("--set", "num_engines=24", "--hours", "2", "--image", "r/i:1", "--shared", "disk"),
        *("--corpus", "it's here", "--push", "s3://b/team"),
    )
    job = yaml.safe_load(path.read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert job["spec"]["activeDeadlineSeconds"] == 7200 and job["spec"]["backoffLimit"] == 0
    shell, *flags, script = shlex.split(job["spec"]["entrypoint"])
    assert (shell, flags) == ("bash", ["-euo", "pipefail", "-c"])
    run, _, push = script.partition(" && ")
    words = shlex.split(run)
    assert words[words.index("--corpus") + 1] == "it's here" and "engine.place=ray" in words
    assert push == "selfplay push mine s3://b/team --weights"
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (2, 2, 2)
    for pod in (cluster["headGroupSpec"], group):
        spec = pod["template"]["spec"]
        (container,) = spec["containers"]
        assert container["image"] == "r/i:1"
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]} == {"shared", "shm"}
        assert spec["volumes"][0]["persistentVolumeClaim"]["claimName"] == "disk"
    assert (tmp_path / "Dockerfile").read_text().startswith("# From a checkout")


def test_a_skypilot_task_starts_a_ray_of_its_own(tmp_path) -> None:
    path, _ = launched(tmp_path, "skypilot", "--set", "num_engines=16", "--gpu", "h200-141")
    task = yaml.safe_load(path.read_text())
    assert task["num_nodes"] == 2 and task["resources"]["accelerators"] == "H200:8"
    checked = subprocess.run(["bash", "-n"], input=task["run"], text=True, check=False)
    assert checked.returncode == 0
    assert not any(line.strip().startswith("ray stop") for line in task["run"].splitlines())
    assert "engine.place=ray" in task["run"]


def pooled(folder: Path, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The base job template and the deployment file that the command writes."""
    words = ["launch", "kubernetes", "scope-iteration", "--profile", PROFILE, "--run", "mine"]
    words += ["--work-pool", "gpu", "--image", "r/i:1", "--shared", "disk"]
    ended = CliRunner().invoke(cli.main, [*words, "-o", str(folder), *options])
    assert ended.exit_code == 0, ended.output
    template = json.loads((folder / "gpu.pool.json").read_text())
    return template, yaml.safe_load((folder / "selfplay-mine.prefect.yaml").read_text())


def test_a_work_pool_starts_a_pod_with_the_gpus_of_the_deployments_plan(tmp_path) -> None:
    from prefect.utilities.templating import apply_values, find_placeholders

    template, file = pooled(tmp_path)
    (deployment,) = file["deployments"]
    assert deployment["work_pool"]["name"] == "gpu"
    variables = template["variables"]["properties"]
    placeholders = find_placeholders(template["job_configuration"])
    assert {placeholder.name for placeholder in placeholders} == set(variables)
    asked = deployment["work_pool"]["job_variables"]
    assert set(asked) <= set(variables)
    values = {name: kind["default"] for name, kind in variables.items()} | asked
    manifest = apply_values(template["job_configuration"], values)["job_manifest"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("batch/v1", "Job")
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["name"], container["image"]) == ("prefect-job", "r/i:1")
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 6}
    assert container["resources"]["requests"]["memory"] == asked["memory"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]} == {"shared", "shm"}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == "disk"


def test_a_deployment_for_a_work_pool_starts_the_run_that_was_asked_for(tmp_path) -> None:
    template, file = pooled(
        tmp_path, "--corpus", "it's here", "--set", "seed=3", "--push", "s3://b/team"
    )
    (deployment,) = file["deployments"]
    module, _, path = deployment["entrypoint"].partition(":")
    function, attribute = path.split(".")
    flow = getattr(getattr(importlib.import_module(module), function), attribute)
    assert (flow.name, deployment["name"]) == ("scope-iteration", PROFILE)
    assert deployment["parameters"] == {
        "profile": PROFILE,
        "run": "mine",
        "overrides": {"seed": 3},
        "corpus": "it's here",
    }
    shell, *flags, script = shlex.split(deployment["work_pool"]["job_variables"]["command"])
    assert (shell, flags) == ("bash", ["-euo", "pipefail", "-c"])
    assert script.endswith("; selfplay push mine s3://b/team --weights")
    other, _ = pooled(tmp_path / "other")
    assert other == template  # a pool is for any deployment


@pytest.mark.parametrize(
    ("ended_by", "status", "written"),
    [(None, 0, ["ran", "pushed"]), (signal.SIGTERM, 143, ["told to end"])],
)
def test_a_run_that_kubernetes_ends_is_told_so_and_not_pushed(
    tmp_path, ended_by, status, written
) -> None:
    out = tmp_path / "out"
    run = tmp_path / "run"
    run.write_text(
        "#!/bin/bash\n"
        f"trap 'echo told to end >> {out}; exit 0' TERM\n"
        f"touch {tmp_path}/started\n"
        f"for i in $(seq 100); do [ -e {tmp_path}/go ] && break; sleep 0.1; done\n"
        f"echo ran >> {out}\n"
    )
    run.chmod(0o755)
    script = RUN_AND_PUSH.format(run=run, push=f"echo pushed >> {out}")
    pod = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script])
    while not (tmp_path / "started").exists():
        assert pod.poll() is None
    if ended_by is None:
        (tmp_path / "go").touch()
    else:
        os.kill(pod.pid, ended_by)
    assert pod.wait(timeout=30) == status
    assert out.read_text().splitlines() == written


@pytest.mark.parametrize(
    ("kind", "options", "what"),
    [
        ("slurm", (), "Prefect has no work pool for slurm"),
        ("kubernetes", ("--set", "num_engines=16"), "2 nodes, and a Prefect work pool starts one"),
    ],
)
def test_a_work_pool_is_for_kubernetes_and_one_node(tmp_path, kind, options, what) -> None:
    words = ["launch", kind, "scope-iteration", "--profile", PROFILE, "--work-pool", "gpu"]
    ended = CliRunner().invoke(cli.main, [*words, "-o", str(tmp_path), *options])
    assert ended.exit_code == 1 and what in ended.output
    assert not list(tmp_path.iterdir())


def test_a_file_with_other_content_is_not_written_over(tmp_path) -> None:
    path, _ = launched(tmp_path, "slurm", "--hours", "1")
    path.write_text("mine")
    words = ["launch", "slurm", "scope-iteration", "--profile", PROFILE, "--run", "mine"]
    ended = CliRunner().invoke(cli.main, [*words, "-o", str(tmp_path)])
    assert ended.exit_code == 1 and "exists with other content" in ended.output
    assert path.read_text() == "mine"


def test_skypilot_knows_every_gpu_that_plans_know() -> None:
    assert ACCELERATORS.keys() == GPUS.keys()


def test_a_plan_says_nodes_network_and_money() -> None:
    words = ["plan", "scope-iteration", "--profile", PROFILE, "--set", "num_engines=16"]
    ended = CliRunner().invoke(cli.main, [*words, "--price-per-gpu-hour", "2.5"])
    assert ended.exit_code == 0, ended.output
    assert "nodes: 2 with 8 GPUs, engines on all, the trainer on one" in ended.output
    assert "GB of weights in an iteration" in ended.output
    told = ended.output.replace(",", "")
    hours = float(told.partition(" GPU-hours busy")[0].rpartition(" ")[2])
    money = float(told.partition("a GPU-hour: ")[2].partition(" an iteration")[0])
    assert money == pytest.approx(2.5 * hours, abs=2.5)
