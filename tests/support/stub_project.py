"""A project folder with a small flow that sleeps or fails on request, for tests of server,
workers and deployments."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.app.service import services
from flows.app.service.api import API
from flows.app.service.site import Site
from tests.support.homes import with_database

FLOW = """
import os
import subprocess
import sys
import time
from prefect import flow, get_run_logger, task

@task
def stage(n: int) -> None:
    get_run_logger().info(f"stage {n} is done")

@flow(name="scope-iteration")
def scope_iteration(profile: str, run: str | None = None, overrides: dict | None = None, corpus: str | None = None):
    get_run_logger().info(f"store {os.environ.get('SELFPLAY_STORE')}, GPUs {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    stage(1)
    if child_s := (overrides or {}).get("child_s"):
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({child_s})"])
    time.sleep((overrides or {}).get("sleep_s", 0))
    if profile == "broken":
        raise ValueError("told to fail")
    print("a line for the console")
    for number in range((overrides or {}).get("lines", 0)):
        get_run_logger().info(f"line {number}")
    stage(2)
"""  # noqa: E501
CONFIG = """
from flows.settings.profile import Settings

class Config(Settings):
    sleep_s: float = 0
    child_s: float = 0
    lines: int = 0
"""
PROFILES = ("micro", "broken", "large")
DEPLOYMENTS = """
name: stub
prefect-version: 3.7.7
definitions:
  flow: &flow
    entrypoint: stub_flows/flow.py:scope_iteration
    work_pool: {name: cpu}
deployments:
  - {<<: *flow, name: micro, parameters: {profile: micro}}
  - {<<: *flow, name: broken, parameters: {profile: broken}}
  - {<<: *flow, name: large, parameters: {profile: large}, work_pool: {name: gpu}}
"""


def make(root: Path) -> Site:
    """The site of a stub project on a free port."""
    package = root / "stub_flows"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "flow.py").write_text(FLOW)
    (package / "config.py").write_text(CONFIG)
    (package / "profiles").mkdir()
    for name in PROFILES:
        (package / "profiles" / f"{name}.toml").touch()
    (root / "prefect.yaml").write_text(DEPLOYMENTS)
    return Site(root, root / "data" / "prefect", free_port())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A stub project with its services up, in a process whose home folder is empty."""
    folder = factory.mktemp("stub")
    (folder / "home").mkdir()
    site = make(folder / "project")
    with_database(site.home, factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        patch.syspath_prepend(str(site.root))
        try:
            services.up(site)
            yield site
        finally:
            services.down(site)


def wait_until(true: Callable[[], bool], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.3)


def state(api: API, run: dict[str, Any]) -> str:
    return api.flow_run(run["id"])["state_type"]
