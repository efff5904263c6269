"""Launch files ask for the nodes, GPUs and hours of the plan, and start the run that was asked
for."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.launch.files import ACCELERATORS
from flows.app.launch.job import nodes_of
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
