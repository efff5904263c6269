"""Engines on the nodes of a Ray cluster give the rows that engines of this machine give, whatever
is killed: what was lost is asked for again, and no row comes twice. The engines are scripted; the
cluster, its nodes, the processes and the connections are real."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from corpus_prep.cluster import connect
from flows.plan.cluster import cluster_problems
from flows.scope.config import Config
from flows.settings.profile import load
from tasks.engines.fleet import Fleet
from tasks.engines.node_child import NodeChild
from tasks.engines.node_folders import CACHE
from tasks.models.engine import EngineConfig, Policy, Sampling
from tasks.rollouts.dialogue import Dialogue
from tests.support.ray_cluster import Nodes, cluster, needs_cluster
from tests.support.scripted import model_folder

pytestmark = [pytest.mark.slow, needs_cluster]
SCRIPTED = Path(__file__).parents[2] / "support" / "node_engine"
NUM_PROMPTS = 60
GROUP = 20


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes keep copies of the flow's folders; they share this machine's disk."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def nodes(cache: Path) -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SCRIPTED))
        patch.setenv(CACHE, str(cache))
        with cluster() as found:
            yield found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = model_folder(tmp_path_factory.mktemp("model"))
    return Policy(id="m", weights=str(folder), content_hash="m")


def rows_of(fleet: Fleet, model: Policy, after: Callable[[int], None] = lambda _: None) -> list:
    """The rows of one call; `after` is called with their number so far."""
    prompts = [
        {"prompt_id": f"p{number}", "role": "r", "messages": [message], "search_turns": None}
        for number in range(NUM_PROMPTS)
        for message in [{"role": "user", "content": "moon sun sea"}]
    ]
    found = []
    for row in fleet.roll_out(
        prompts, model, Sampling(max_tokens=8), Dialogue(), group_size=GROUP, seed=3
    ):
        found.append((row["rollout_id"], row["reply"]))
        after(len(found))
    return found


def child(fleet: Fleet, number: int) -> NodeChild:
    found = fleet._pool.children[number]
    assert isinstance(found, NodeChild)
    return found


def test_rows_are_the_same_on_nodes_and_after_kills_of_actors_and_a_node(
    nodes: Nodes, model: Policy, tmp_path: Path
) -> None:
    here = EngineConfig(model=model.weights, max_model_len=64)
    with Fleet(here, 2, tmp_path / "here") as fleet:
        undisturbed = sorted(rows_of(fleet, model))
    assert len(undisturbed) == NUM_PROMPTS * GROUP
    assert len({reply for _, reply in undisturbed}) > 100

    on_nodes = here.model_copy(update={"place": "ray"})
    with Fleet(on_nodes, 2, tmp_path / "nodes") as fleet:
        assert sorted(rows_of(fleet, model)) == undisturbed
        hosts = [child(fleet, number).pids() for number in (0, 1)]
        raylets = {psutil.Process(actor).ppid() for _, actor, _ in hosts}
        assert len(raylets) == 2, "one engine on each node"

        left = ["actor", "actor", "actor", "node"]
        killed_at = [0]

        def kill(num_rows: int) -> None:
            number = len(left) % 2
            # it has to send rows between two losses, and others, too
            if not left or num_rows < killed_at[0] + 50 or number not in fleet._pool._fruitful:
                return
            actor = child(fleet, number).pids()[1]
            if left.pop(0) == "actor":
                os.kill(actor, signal.SIGKILL)
            else:
                nodes.kill(nodes.holding(psutil.Process(actor).ppid()))
                nodes.add()
            killed_at[0] = num_rows

        found = rows_of(fleet, model, kill)
        assert left == []
        assert Counter(rollout for rollout, _ in found).most_common(1)[0][1] == 1
        assert sorted(found) == undisturbed
        engines = [psutil.Process(child(fleet, number).pids()[2]) for number in (0, 1)]
    _, alive = psutil.wait_procs(engines, timeout=60)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    _no_actor_is_left()


def _no_actor_is_left() -> None:
    ray = connect("the test")
    until = time.monotonic() + 60
    while ray.available_resources().get("CPU") != 2.0:
        assert time.monotonic() < until, ray.available_resources()
        time.sleep(0.5)


def test_engines_use_their_nodes_copies_of_weights_where_a_node_has_a_cache(
    nodes: Nodes, model: Policy, cache: Path, tmp_path: Path
) -> None:
    here = EngineConfig(model=model.weights, max_model_len=64)
    with Fleet(here, 1, tmp_path / "here") as fleet:
        undisturbed = sorted(rows_of(fleet, model))
    kept = {path.name for path in cache.iterdir() if path.is_dir()}
    # another model is another folder in the cache
    other = model_folder(tmp_path / "other")
    (other / "note.txt").write_text("another content")
    fetched = Policy(id="m", weights=str(other), content_hash="m")
    on_nodes = EngineConfig(model=str(other), max_model_len=64, place="ray")
    with Fleet(on_nodes, 2, tmp_path / "nodes") as fleet:
        assert sorted(rows_of(fleet, fetched)) == undisturbed
    (copy,) = {path for path in cache.iterdir() if path.is_dir() and path.name not in kept}
    assert (copy / "note.txt").read_text() == "another content"


def test_the_preflight_finds_nodes_like_this_machine_and_counts_their_room(
    nodes: Nodes, model: Policy, tmp_path: Path
) -> None:
    settings = {
        "engine.place": "ray",
        "engine.kv_cache_bytes": 1 << 20,
        "models.base": model.weights,
        "engine.model": model.weights,
    }
    fits = load(Config, "micro", {**settings, "num_engines": 2})
    assert cluster_problems(fits, tmp_path) == []
    (problem,) = cluster_problems(load(Config, "micro", {**settings, "num_engines": 3}), tmp_path)
    assert "2 node(s) have room for 2 of 3 engine process(es) with 1 CPU(s) each" in problem
