"""vLLM on the nodes of a Ray cluster samples what vLLM of this machine samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tasks.engines.fleet import Fleet
from tasks.engines.node_child import NodeChild
from tasks.models.engine import EngineConfig, Policy, Sampling
from tests.support.ray_cluster import Nodes, cluster, needs_cluster
from tests.support.scripted import model_folder
from tests.tasks.engines.test_engine_vllm import ONE_TURN, config, prompts

pytestmark = [pytest.mark.slow, needs_cluster]
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


def test_two_engines_on_two_nodes_sample_what_one_here_samples(
    nodes: Nodes, model: Policy, undisturbed: list, tmp_path: Path
) -> None:
    with Fleet(settings(model), 2, tmp_path) as fleet:
        assert key(calls(fleet, model)) == undisturbed
        raylet_of = [psutil.Process(host(fleet, number)[1]).ppid() for number in (0, 1)]
        assert len(set(raylet_of)) == 2  # one on each node
