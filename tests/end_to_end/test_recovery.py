"""Workers that died, and flows that resume after the server gave them up."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from flows.app.command import parameters, start
from flows.app.service import at_work, services
from flows.app.service.api import API
from flows.app.service.site import Site
from flows.app.service.watch import watch
from tests.support import stub_project
from tests.support.stub_project import state, wait_until

DEPLOYMENT = "scope-iteration/micro"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with stub_project.running(tmp_path_factory) as site:
        yield site


def kill_worker(site: Site) -> None:
    worker = site.process("worker-cpu").find()
    if worker is not None:
        worker.kill()
        worker.wait()


def stopped_and_given_up(
    site: Site, api: API, name: str, **settings: float
) -> tuple[dict[str, Any], psutil.Process]:
    """A flow run whose process was stopped by SIGSTOP and marked Crashed, as the server does
    after two minutes."""
    run = api.submit(
        DEPLOYMENT,
        parameters.make_parameters("micro", name, overrides={"sleep_s": 600, **settings}),
    )
    wait_until(lambda: state(api, run) == "RUNNING")
    process = site.process(f"flow-{run['id']}").find()
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    api.set_state(run["id"], "CRASHED")
    return run, process


@pytest.mark.slow
def test_a_flow_that_comes_back_after_it_was_given_up_ends(running: Site) -> None:
    api = API.of(running)
    run, process = stopped_and_given_up(running, api, "back", child_s=600)
    family = [process, *process.children()]
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: not any(member.is_running() for member in family))
    log = (running.logs / f"flow-{run['id']}.log").read_text()
    assert (
        "the server has given up this flow run, which ends" in log and state(api, run) == "CRASHED"
    )


@pytest.mark.slow
def test_a_stopped_flow_that_was_given_up_is_ended_by_stop_and_by_the_next_command(
    running: Site,
) -> None:
    api = API.of(running)
    said = list[str]()
    for end in (
        lambda: at_work.stop(running, "mine", said.append),
        lambda: services.up(running, say=said.append),
    ):
        run, process = stopped_and_given_up(running, api, "mine")
        end()
        assert not process.is_running()
        assert said.pop().startswith(
            f"ended the process of flow run {run['name']}, which had fallen silent"
        )


@pytest.mark.slow
def test_a_dead_worker_is_noticed_and_started_again(
    running: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    api = API.of(running)
    kill_worker(running)
    run = api.submit(DEPLOYMENT, parameters.make_parameters("micro", "late"))
    said = list[str]()
    assert watch(running, api, run, said.append) == "COMPLETED"
    assert any(line.startswith("the worker of the cpu pool has died (log: ") for line in said)
    kill_worker(running)
    assert start.run_flow(running, "scope-iteration", parameters.make_parameters("micro", "later"))
    assert "starting a worker for the cpu pool" in capsys.readouterr().out


@pytest.mark.slow
def test_a_worker_that_cannot_live_is_an_error_that_shows_its_log(running: Site) -> None:
    """For example, if another user owns the folder where Prefect's worker keeps its files."""
    kill_worker(running)
    storage: Path = running.home / "tmp" / "runner_storage"
    aside = storage.rename(storage.with_name("aside")) if storage.exists() else None
    storage.write_text("no folder")
    try:
        api = API.of(running)
        run = api.submit(DEPLOYMENT, parameters.make_parameters("micro", "never"))
        with contextlib.suppress(RuntimeError):  # detected at once on a fast machine
            services.up(running)
        with pytest.raises(
            RuntimeError,
            match=r"(?s)the worker of the cpu pool ends .*worker-cpu\.log.*runner_storage",
        ):
            watch(running, api, run, lambda _: None)
        api.set_state(run["id"], "CANCELLED")
    finally:
        storage.unlink()
        if aside:
            aside.rename(storage)
