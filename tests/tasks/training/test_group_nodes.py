"""The trainer's processes on the nodes of a Ray cluster make the update that processes of this
machine make; the loss of a node fails it, and a rerun goes on. All of it is real: the cluster, its
nodes, torch's rendezvous, DDP, FSDP2 and TRL."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.engines.fleet import Fleet
from tasks.engines.node_child import NodeChild
from tasks.models.engine import EngineConfig
from tasks.training.checkpoint import Checkpoint
from tasks.training.group import Group, TrainerDied
from tasks.training.node_member import NodeMember
from tests.support.grpo_jobs import make_models
from tests.support.ray_cluster import Nodes, cluster, needs_cluster
from tests.support.reference_grpo import relative_difference
from tests.support.scripted import model_folder
from tests.tasks.training.test_group import LORA, STEPS, ShardingGroup, after, job, weights_of

pytestmark = [pytest.mark.slow, needs_cluster]
SCRIPTED = Path(__file__).parents[2] / "support" / "node_engine"
# Adam divides by the root of a mean square, so that the order of sums shows: see the test of two
# processes on one machine, which has the same bound
BOUND = 1e-5


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SCRIPTED))
        with cluster() as made:
            yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("models"))


def hosts(group: Group) -> list[tuple[str, int, int]]:
    """Node, actor and process of each of the group's."""
    return [member.pids() for member in group.members if isinstance(member, NodeMember)]


@pytest.mark.parametrize(("kind", "settings"), [(Group, LORA), (ShardingGroup, STEPS)])
def test_two_nodes_make_the_updates_of_two_processes_here_and_of_one(
    nodes: Nodes, folder: Path, tmp_path: Path, kind: type[Group], settings: dict
) -> None:
    """Two updates each, the second from what the first left in the processes' memory."""
    groups = {
        "nodes": kind(tmp_path / "nodes.log", 2, "cpu", 1, place="ray"),
        "here": kind(tmp_path / "here.log", 2, "cpu", 1),
        "alone": Group(tmp_path / "alone.log", 1, "cpu", 1),
    }
    losses = {}
    started = {}
    made = {}
    for name, group in groups.items():
        first = group.train(
            job(tmp_path, folder, "first", settings, state_later=True, out=tmp_path / name / "1")
        )
        group.write_state(first.optimizer_state)
        start = {"out": tmp_path / name / "2", **after(first, settings)}
        second = group.train(job(tmp_path, folder, "second", settings, **start))
        if name == "nodes":
            raylets = {psutil.Process(actor).ppid() for _, actor, _ in hosts(group)}
            assert len(raylets) == 2, "one process on each node"
        group.close()
        losses[name] = [step.loss for step in (*first.steps, *second.steps)]
        made[name] = weights_of(second.policy)
        started[name] = weights_of(first.policy)
    assert losses["nodes"] == losses["here"]
    assert made["nodes"].keys() == made["here"].keys()
    assert all(made["nodes"][name].equal(made["here"][name]) for name in made["here"])
    assert losses["nodes"] == pytest.approx(losses["alone"], rel=1e-4, abs=1e-6)
    assert relative_difference(started["alone"], made["nodes"], made["alone"]) < BOUND


def test_a_lost_node_fails_the_update_and_the_next_one_goes_on_from_its_checkpoint(
    nodes: Nodes, folder: Path, tmp_path: Path
) -> None:
    settings = {**LORA, "optimizer_steps": 12}
    shards = tmp_path / "checkpoints"
    start = {"num_rows": 60, "checkpoint_s": 0.0}
    undisturbed = Group(tmp_path / "here.log", 2, "cpu", 1)
    wanted = undisturbed.train(job(tmp_path, folder, "wanted", settings, **start))
    undisturbed.close()
    pair = Group(tmp_path / "nodes.log", 2, "cpu", 1, place="ray")
    batch = {"batch": tmp_path / "wanted.parquet", "checkpoints": shards}
    asked = job(tmp_path, folder, "lost", settings, **start).model_copy(update=batch)
    killed: list[int] = []

    def kill_a_node_after_some_steps() -> None:
        while not list(shards.glob("step-*")):
            time.sleep(0.05)
        raylet = psutil.Process(hosts(pair)[1][1]).ppid()
        nodes.kill(nodes.holding(raylet))
        killed.append(raylet)

    killer = threading.Thread(target=kill_a_node_after_some_steps)
    killer.start()
    with pytest.raises(TrainerDied, match="loss of its node or actor"):
        pair.train(asked)
    killer.join()
    assert killed and pair.members == []
    done = Checkpoint.last(shards)
    assert done is not None and 0 < len(done.steps) < 12
    nodes.add()
    again = pair.train(asked.model_copy(update={"out": tmp_path / "again"}))
    pids = [process for _, _, process in hosts(pair)]
    pair.close()
    assert [step.loss for step in again.steps] == [step.loss for step in wanted.steps]
    ours = weights_of(again.policy)
    theirs = weights_of(wanted.policy)
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], 30
    )
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_the_trainer_takes_turns_with_engines_and_follows_one_that_was_lost(
    nodes: Nodes, folder: Path, tmp_path: Path
) -> None:
    """Two engines have the only cores of both nodes."""
    model = model_folder(tmp_path / "model")
    config = EngineConfig(model=str(model), max_model_len=64, place="ray")
    with Fleet(config, 2, tmp_path / "engines") as fleet:
        pair = Group(tmp_path / "log", 2, "cpu", 1, place="ray", seats=fleet.seats)
        first = pair.train(job(tmp_path, folder, "first", LORA))
        members = list(pair.members)
        assert _raylets(hosts(pair)) == _raylets(_engines(fleet))
        os.kill(_engines(fleet)[0][1], signal.SIGKILL)
        time.sleep(5)
        second = pair.train(job(tmp_path, folder, "second", LORA, **after(first, LORA)))
        assert second.num_datums == 5
        assert _raylets(hosts(pair)) == _raylets(_engines(fleet))
        assert len(members) == len(pair.members) == 2
        pair.close()


def _engines(fleet: Fleet) -> list[tuple[str, int, int]]:
    children = [fleet._pool.children[number] for number in (0, 1)]
    return [child.pids() for child in children if isinstance(child, NodeChild)]


def _raylets(found: list[tuple[str, int, int]]) -> list[int]:
    return [psutil.Process(actor).ppid() for _, actor, _ in found]
