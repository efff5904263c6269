"""Engines on the nodes of a Ray cluster sample what engines of this machine sample; what a lost
node had not sent is asked for again, and no row comes twice."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.engines.fleet import Fleet
from tasks.engines.node_child import NodeChild
from tasks.models.engine import EngineConfig, Policy, Sampling
from tests.support.ray_cluster import Nodes, cluster
from tests.support.scripted import model_folder
from tests.tasks.engines.test_engine_vllm import ONE_TURN, config, prompts

pytestmark = pytest.mark.slow
NUM_ROWS = 6 * 60


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster() as found:
        yield found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = model_folder(tmp_path_factory.mktemp("model"), 1)
    return Policy(id="m", weights=str(folder), content_hash="m")


def settings(model: Policy) -> EngineConfig:
    return config(model, place="ray")


def calls(fleet: Fleet, model: Policy):
    return fleet.roll_out(prompts(), model, Sampling(max_tokens=40), ONE_TURN, group_size=60)


def key(rows) -> list:
    return sorted((row["rollout_id"], row["reply"]) for row in rows)


@pytest.fixture(scope="module")
def undisturbed(model: Policy, tmp_path_factory: pytest.TempPathFactory) -> list:
    """What an engine of this machine samples."""
    with Fleet(config(model), 1, tmp_path_factory.mktemp("local")) as fleet:
        rows = key(calls(fleet, model))
    assert len(rows) == NUM_ROWS
    return rows


def host(fleet: Fleet, number: int) -> tuple[str, int, int]:
    child = fleet._pool.children[number]
    assert isinstance(child, NodeChild)
    return child.pids()


def test_two_engines_on_two_nodes_sample_what_one_here_samples_whatever_is_killed(
    nodes: Nodes, model: Policy, undisturbed: list, tmp_path: Path
) -> None:
    with Fleet(settings(model), 2, tmp_path) as fleet:
        assert key(calls(fleet, model)) == undisturbed
        raylet_of = [psutil.Process(host(fleet, number)[1]).ppid() for number in (0, 1)]
        assert len(set(raylet_of)) == 2  # one on each node

        # the engine's process, an actor with it, and a whole node: each loses what was not sent
        rows = []
        kills = ["engine", "actor", "node"]
        for row in calls(fleet, model):
            rows.append(row)
            if kills and len(rows) >= 20 * (4 - len(kills)):
                kill = kills.pop(0)
                engine = host(fleet, 0)[2]
                if kill == "engine":
                    os.kill(engine, signal.SIGKILL)
                elif kill == "actor":
                    child = fleet._pool.children[1]
                    assert isinstance(child, NodeChild)
                    os.kill(child.pids()[1], signal.SIGKILL)
                else:
                    raylet = psutil.Process(host(fleet, 1)[1]).ppid()
                    nodes.kill(
                        next(
                            n
                            for n in nodes.nodes
                            if n.all_processes["raylet"][0].process.pid == raylet
                        )
                    )
                    nodes.add()
        assert not kills
        assert Counter(row["rollout_id"] for row in rows).most_common(1)[0][1] == 1
        assert key(rows) == undisturbed

    deadline = time.monotonic() + 60
    while any(_is_engine(p) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline, "an engine outlived its fleet"
        time.sleep(0.5)


def _is_engine(process: psutil.Process) -> bool:
    """Whether this is an engine of this test's nodes: others run on this machine, too."""
    words = process.info["cmdline"] or []
    return "tasks.engines.fleet_child" in words and os.environ["RAY_TMPDIR"] in _environment(
        process
    )


def _environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("RAY_TMPDIR", "")
    except psutil.Error:
        return ""
