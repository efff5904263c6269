"""The cluster's preflight names each node that is wrong, and what to do."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.plan.cluster import Look, Node, look, node_problems, short_of_room
from flows.scope.config import Config
from flows.settings.profile import load

GOOD = Node(
    name="n1",
    python="3.11.9",
    packages={"selfplay-flows": "0.2.0", "torch": "2.13.0", "vllm": "0.32.0", "ray": "2.60.0"},
    sees_store=True,
    missing_models=(),
    unreachable=None,
    clock=0.0,
    memory_free=1 << 40,
    disk_free=1 << 40,
)


def settings(**changes: Any) -> Config:
    return load(Config, "qwen3-8b-6gpu-lora", {"engine.place": "ray", **changes})


def test_a_node_like_this_machine_is_fine() -> None:
    assert list(node_problems(GOOD, replace(GOOD, name="here", python="3.11.2"), [])) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"python": "3.12.1"}, "node n1 has Python 3.12.1, this machine 3.11.9: install the same"),
        (
            {"packages": {**GOOD.packages, "vllm": "0.31.0"}},
            "node n1 has vllm 0.31.0, this machine 0.32.0: install the same lock on all",
        ),
        (
            {"packages": {k: v for k, v in GOOD.packages.items() if k != "torch"}},
            "node n1 has torch not installed, this machine 2.13.0",
        ),
        ({"sees_store": False}, "node n1 does not see the store's folder"),
        ({"missing_models": ("/models/a",)}, "node n1 has no model folder /models/a"),
        ({"unreachable": "10.0.0.1:80: timed out"}, "node n1 cannot reach this machine (10.0.0.1"),
        ({"clock_off_s": 61.0}, "the clock of node n1 is 61 s off: let NTP"),
        ({"disk_free": 10**9}, "node n1 has 1.0 GB of disk free for temporary files, 2.1 are"),
    ],
)
def test_what_is_wrong_with_a_node_is_said_with_a_way_out(changes, told) -> None:
    (problem,) = node_problems(replace(GOOD, **changes), GOOD, [])
    assert problem.startswith(told)


def test_a_node_that_only_samples_needs_no_shared_folder():
    apart = replace(GOOD, sees_store=False, missing_models=("/models/base",))
    assert len(list(node_problems(apart, GOOD, [], trains=True))) == 2
    assert list(node_problems(apart, GOOD, [], trains=False)) == []


@pytest.mark.parametrize(
    ("gpus", "changes", "room"),
    [
        ((8, 8), {"num_engines": 16}, None),
        ((8, 4), {"num_engines": 16}, 12),
        # three GPUs an engine: two on eight, one on four
        ((8, 4), {"num_engines": 3, "engine.tensor_parallel": 3}, None),
        ((8, 4), {"num_engines": 4, "engine.tensor_parallel": 3}, 3),
    ],
)
def test_the_gpus_of_an_engine_are_of_one_node(gpus, changes, room) -> None:
    nodes = [replace(GOOD, gpus=float(number), cpus=64.0) for number in gpus]
    cfg = settings(**changes)
    problems = short_of_room(cfg, nodes)
    if room is None:
        assert problems == []
    else:
        (problem,) = problems
        assert f"have room for {room} of {cfg.num_engines} engine process(es)" in problem


def test_a_trainer_has_room_on_any_nodes_and_needs_none_beside_engines() -> None:
    nodes = [replace(GOOD, gpus=3.0, cpus=64.0), replace(GOOD, gpus=2.0, cpus=64.0)]
    alone = {"engine.place": "local", "trainer_place": "ray"}
    assert short_of_room(settings(**alone, trainer_processes=5), nodes) == []
    (problem,) = short_of_room(settings(**alone, trainer_processes=6), nodes)
    assert "have room for 5 of 6 trainer process(es) with 1 GPU(s)" in problem
    turns = {"trainer_place": "ray", "num_engines": 5, "trainer_processes": 5}
    assert short_of_room(settings(**turns), nodes) == []
    with pytest.raises(ValueError, match="on their GPUs, and these have 5: raise num_engines"):
        settings(**turns | {"trainer_processes": 6})


def test_a_look_around_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "marker").write_text("yes")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asked = Look(
            marker=str(tmp_path / "marker"),
            content="yes",
            models=(str(tmp_path), str(tmp_path / "none")),
            addresses=("127.0.0.1",),
            port=port,
        )
        found = look(asked)
        other = look(replace(asked, content="no"))
    assert found.sees_store and not other.sees_store
    assert found.missing_models == (str(tmp_path / "none"),)
    assert found.unreachable is None
    assert "refused" in str(look(asked).unreachable)  # nobody listens any more
    assert found.packages["selfplay-flows"] and found.memory_free > 0
