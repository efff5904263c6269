"""Server, workers and deployments: what is written where, who may talk to the server, and
recovery after a kill."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.app.command import parameters, start
from flows.app.service import at_work, services
from flows.app.service.api import API
from flows.app.service.process import Process
from flows.app.service.site import Site
from flows.app.service.watch import watch
from tests.support import stub_project
from tests.support.stub_project import state, wait_until

PREFECT = str(Path(sys.executable).parent / "prefect")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return stub_project.make(tmp_path / "project")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with stub_project.running(tmp_path_factory) as site:
        yield site


def test_secret_is_made_once_and_only_its_owner_may_read_it(site: Site) -> None:
    (site.root / ".env").write_text("MY_OWN=1\n")
    site.prepare()
    again = Site(site.root, site.home)
    again.prepare()
    assert again.secret == site.secret
    assert again.port == site.port
    assert len(site.secret) > 40
    assert "MY_OWN=1\n" in site.env_file.read_text()
    assert site.env_file.stat().st_mode & 0o777 == 0o600


def test_the_prefect_settings_of_a_user_do_not_reach_our_processes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_KEY", "of the cloud")
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    environment = site.environment()
    assert "PREFECT_API_KEY" not in environment
    assert environment["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert environment["PREFECT_HOME"] == str(site.home)


def test_a_taken_port_is_an_error_that_names_the_way_out(site: Site) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", site.port))
        other.listen()
        with pytest.raises(RuntimeError, match=rf"port {site.port} .* `selfplay up --port N`"):
            services.up(site)


def test_a_reused_pid_is_not_taken_for_our_process(tmp_path: Path) -> None:
    process = Process(tmp_path / "worker.json")
    process.write(os.getpid())
    assert process.find() is not None
    process.path.write_text(f'{{"pid": {os.getpid()}, "start": "of another boot"}}')
    assert process.find() is None
    assert not process.stop()


def test_a_stopped_process_takes_its_children_along(site: Site) -> None:
    child = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time;"
        " time.sleep(60)'])"
    )
    process = site.start("parent", ["-c", child])
    found = process.find()
    assert found is not None
    wait_until(lambda: len(found.children()) == 1)
    grandchild = found.children()[0]
    assert process.stop()
    assert not grandchild.is_running()


@pytest.mark.slow
def test_down_ends_a_server_that_answers_nothing_but_errors(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200 if request.url.path == "/flows/count" else 500, text="of no use")

    api = API(httpx.Client(base_url="http://server", transport=httpx.MockTransport(answer)))
    monkeypatch.setattr(API, "of", lambda site: api)
    with pytest.raises(RuntimeError, match="POST /flow_runs/filter by 500: of no use"):
        api.unfinished()
    server = site.start("server", ["-c", "import time; time.sleep(60)"])
    said = []
    services.down(site, said.append)
    assert server.find() is None
    assert "not marked" in said[0] and said[-1] == "ended server"


@pytest.mark.slow
def test_only_who_knows_the_secret_may_talk_to_the_server(running: Site) -> None:
    answer = httpx.post(f"{running.url}/flows/count", json={}, trust_env=False)
    assert answer.status_code == 401
    assert API.of(running).healthy()


@pytest.mark.slow
def test_plain_prefect_in_the_project_folder_exits_as_the_flow_ended(running: Site) -> None:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")
    }
    watched = [
        subprocess.Popen(
            [PREFECT, "deployment", "run", f"scope-iteration/{profile}", "--watch"],
            cwd=running.root,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        for profile in ("micro", "broken")
    ]
    assert [process.wait(timeout=600) for process in watched] == [0, 1]
    assert list(Path(os.environ["HOME"]).iterdir()) == []


@pytest.mark.slow
def test_selfplay_run_prints_the_whole_log_and_tells_success_from_failure(
    running: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """More lines at once than the server returns in one answer."""
    wanted = parameters.make_parameters("micro", "micro", overrides={"lines": 450})
    assert start.run_flow(running, "scope-iteration", wanted)
    printed = capsys.readouterr().out
    assert [number for number in range(450) if f" line {number}\n" not in printed] == []
    assert "stage 2 is done" in printed
    assert not start.run_flow(
        running, "scope-iteration", parameters.make_parameters("broken", "broken")
    )
    assert "told to fail" in capsys.readouterr().out


@pytest.mark.slow
def test_a_flow_run_has_the_store_and_the_gpus_of_the_one_who_asks(
    running: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It does not get those that its worker was started with."""
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert start.run_flow(running, "scope-iteration", parameters.make_parameters("micro", "micro"))
    assert f"store {tmp_path}, GPUs 1\n" in capsys.readouterr().out


@pytest.mark.slow
def test_the_same_command_follows_the_run_at_work_and_another_one_is_told_how_to_end_it(
    running: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    api = API.of(running)
    asked = parameters.make_parameters("micro", "mine", overrides={"sleep_s": 30})
    deployment = "scope-iteration/micro"
    elsewhere = api.submit(deployment, asked, {"SELFPLAY_STORE": str(tmp_path / "other")})
    first = api.submit(deployment, asked, parameters.environment())
    other = parameters.make_parameters("micro", "mine")
    for wanted, here in ((other, False), (asked, True)):
        with pytest.raises(
            ValueError,
            match=f"flow run {first['name']} is running 'mine' .*`selfplay stop mine` stops it",
        ):
            start.run_flow(running, "scope-iteration", wanted, here)
    assert start.run_flow(running, "scope-iteration", asked)
    said = capsys.readouterr().out
    assert (
        f"run 'mine' is already running, flow run {first['name']}: http" in said
        and "stage 2 is done" in said
    )
    wait_until(lambda: state(api, elsewhere) == "COMPLETED")


@pytest.mark.slow
def test_one_run_is_stopped_with_its_children_and_the_others_go_on(
    running: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path))
    api = API.of(running)
    said = []

    def submit(name: str, **settings: float) -> dict:
        return api.submit(
            "scope-iteration/micro", parameters.make_parameters("micro", name, overrides=settings)
        )

    mine = submit("mine", sleep_s=600, child_s=600)
    other = submit("other", sleep_s=600)
    processes = [running.process(f"flow-{run['id']}") for run in (mine, other)]
    wait_until(lambda: [state(api, run) for run in (mine, other)] == ["RUNNING"] * 2)
    wait_until(lambda: len(processes[0].find().children()) == 1)  # type: ignore[union-attr]
    # type: ignore[union-attr]
    child = processes[0].find().children()[0]
    waiting = submit("waiting")
    at_work.stop(running, "waiting", said.append)
    at_work.stop(running, "mine", said.append)
    assert [mine["name"] in line for line in said] == [False, True]
    assert (
        not child.is_running() and processes[0].find() is None and processes[1].find() is not None
    )
    with pytest.raises(ValueError, match="no flow run of 'mine' is running"):
        at_work.stop(running, "mine")
    at_work.stop(running, "other")
    time.sleep(3.0)  # until its worker notices the dead process
    assert [state(api, run) for run in (mine, other, waiting)] == ["CANCELLED"] * 3


@pytest.mark.slow
def test_a_flow_outlives_its_killed_worker_and_up_revives_the_rest(running: Site) -> None:
    api = API.of(running)
    run = api.submit("scope-iteration/micro", {"overrides": {"sleep_s": 8}})
    wait_until(lambda: state(api, run) == "RUNNING")
    worker = running.process("worker-cpu").find()
    assert worker is not None
    worker.kill()
    worker.wait()
    services.up(running)
    wait_until(lambda: state(api, run) == "COMPLETED")


@pytest.mark.slow
def test_killed_flows_give_their_slots_back(running: Site) -> None:
    api = API.of(running)
    runs = [
        api.submit("scope-iteration/micro", {"overrides": {"sleep_s": 600}})
        for _ in range(services.POOLS["cpu"])
    ]
    wait_until(lambda: all(state(api, run) == "RUNNING" for run in runs))
    for name in ("worker-cpu", *(f"flow-{run['id']}" for run in runs)):
        process = running.process(name).find()
        assert process is not None
        process.kill()
        with contextlib.suppress(ChildProcessError):
            process.wait()
    services.up(running)
    assert [state(api, run) for run in runs] == ["CRASHED", "CRASHED"]
    assert start.run_flow(running, "scope-iteration", parameters.make_parameters("micro", "micro"))


@pytest.mark.slow
def test_the_server_alone_finds_a_flow_that_fell_silent(
    running: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "SILENCE_S", 20.0)  # it is killed soon after its first heartbeat
    api = services.up(running)
    run = api.submit("scope-iteration/micro", {"profile": "micro", "overrides": {"sleep_s": 600}})
    process = running.process(f"flow-{run['id']}")
    wait_until(lambda: process.find() is not None and state(api, run) == "RUNNING")
    time.sleep(3.0)  # its first heartbeat is on its way
    for killed in (running.process("worker-cpu"), process):
        killed.find().kill()  # type: ignore[union-attr]
    wait_until(lambda: state(api, run) == "CRASHED")
    assert "fell silent" in api.flow_run(run["id"])["state"]["message"]


@pytest.mark.slow
def test_one_flow_at_a_time_on_the_gpu_and_the_next_as_soon_as_its_holder_is_killed(
    running: Site,
) -> None:
    api = services.up(running, pools=("gpu",))
    runs = [api.submit("scope-iteration/large", {"overrides": {"sleep_s": 600}}) for _ in range(2)]
    wait_until(lambda: "RUNNING" in [state(api, run) for run in runs])
    holder, waiting = sorted(runs, key=lambda run: state(api, run) != "RUNNING")
    said: list[str] = []
    threading.Thread(
        target=watch, args=(running, API.of(running), waiting, said.append), daemon=True
    ).start()
    wait_until(lambda: any("waits" in line for line in said))
    time.sleep(3.0)
    assert state(api, waiting) == "SCHEDULED"
    explained = [line for line in said if "waits" in line]
    assert explained == [
        f"{waiting['name']} waits for a slot of the gpu pool, 1 of 1 running: {holder['name']} on"
        " run 'large'; `selfplay stop RUN` ends one"
    ]
    wait_until(lambda: running.process(f"flow-{holder['id']}").find() is not None)
    running.process(f"flow-{holder['id']}").find().kill()  # type: ignore[union-attr]
    wait_until(lambda: state(api, waiting) == "RUNNING")
    assert state(api, holder) == "CRASHED"
    at_work.stop(running, "large")
    assert state(api, waiting) == "CANCELLED"
    # its own word: crashed
    wait_until(lambda: any(line.startswith(f"{waiting['name']} ended as c") for line in said))
