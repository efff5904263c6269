"""Processes of nodes, in a cluster that is none."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.engines import node_child
from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig, EngineDied, Policy, Sampling
from tasks.rollouts.dialogue import Dialogue
from tests.support.scripted import model_folder


class Full:
    """Ray on a cluster without room: what it is asked for never comes."""

    util = SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")

    def __init__(self) -> None:
        self.num_actors = 0

    def remote(self, *_: Any, **__: Any) -> Any:
        """An actor's class, an actor, or a call of one of its methods."""
        return SimpleNamespace(options=self.options, wait=self, pids=self, remote=self.remote)

    def options(self, **_: Any) -> Any:
        self.num_actors += 1
        return self.remote()

    def wait(self, awaited: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        time.sleep(timeout)
        return [], awaited

    def kill(self, *_: Any, **__: Any) -> None:
        pass


def test_an_engine_that_finds_no_node_says_so_and_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ray = Full()
    monkeypatch.setattr(node_child, "connect", lambda _: ray)
    monkeypatch.setattr(node_child, "MOST_WAIT_S", 0.2)
    monkeypatch.setattr(node_child, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(node_child, "CLOSE_S", 0.2)
    folder = str(model_folder(tmp_path))
    config = EngineConfig(model=folder, max_model_len=64, place="ray")
    policy = Policy(id="m", weights=folder, content_hash="h")
    prompts: Any = [{"prompt_id": "a", "role": "r", "messages": [], "search_turns": None}]
    with (
        Fleet(config, 1, tmp_path) as fleet,
        pytest.raises(EngineDied, match=r"engine 0 was not started: no node had 1 cpus for"),
    ):
        list(fleet.roll_out(prompts, policy, Sampling(max_tokens=4), Dialogue()))
    assert ray.num_actors == 1
