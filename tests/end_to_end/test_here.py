"""Flow runs in the command's own process: what they make, what the server records, and when they
are chosen."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.app.service import services
from flows.app.service.api import API
from flows.app.service.site import Site
from tests.support.homes import with_database
from tests.support.stub_project import free_port
from warehouse.store import Store

SELFPLAY = str(Path(sys.executable).parent / "selfplay")
TEXT = (
    "Document {i}. River {i} flows through a valley of many people. "
    "Every spring its water rises, and the fields are green."
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The project's own flows under a separate server, with a finished corpus `c`."""
    folder = tmp_path_factory.mktemp("here")
    site = Site(home=with_database(folder / "home", tmp_path_factory), port_choice=free_port())
    (folder / "texts").mkdir()
    for i in range(6):
        (folder / "texts" / f"{i}.txt").write_text(TEXT.format(i=i))
    try:
        said = selfplay(site, "corpus", "prepare", str(folder / "texts"), "--run", "c", "--here")
        assert ", in this process: http" in said and "6 documents stay in c" in said
        yield site
    finally:
        services.down(site)


def selfplay(site: Site, *arguments: str) -> str:
    own = {"SELFPLAY_PREFECT_HOME": str(site.home), "SELFPLAY_PREFECT_PORT": str(site.port)}
    own |= {"SELFPLAY_STORE": str(store(site))}
    command = [SELFPLAY, *arguments]
    done = subprocess.run(
        command, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def store(site: Site) -> Path:
    return site.home.parent / "store"


def again(site: Site, *more: str) -> str:
    corpus = site.home.parent / "texts"
    return selfplay(
        site,
        "run",
        "prepare-corpus",
        "--profile",
        "text",
        "--run",
        "c",
        "--corpus",
        str(corpus),
        *more,
    )


def last_run(site: Site) -> tuple[dict[str, Any], list[str]]:
    """The last flow run to end, and its log."""
    api = API.of(site)
    [run] = api.http.post("/flow_runs/filter", json={"sort": "START_TIME_DESC", "limit": 1}).json()
    return run, [line["message"] for line in api.logs(run["id"], "2000-01-01T00:00:00+00:00")]


@pytest.mark.slow
def test_a_finished_run_that_is_asked_for_again_needs_no_worker_and_is_recorded(site: Site) -> None:
    said = again(site)
    assert "in this process: all 12 stages are fresh: http" in said and "completed" in said
    run, log = last_run(site)
    assert (
        run["state_type"] == "COMPLETED"
        and run["work_pool_name"] == "cpu"
        and run["total_run_time"] > 0
    )
    assert "c/documents.prepared: fresh, 6 rows" in log
    assert not site.process(f"flow-{run['id']}").path.exists()


def task_runs(site: Site, run: dict[str, Any]) -> dict[str, str]:
    """Name -> state of a flow run's tasks."""
    asked = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    return {
        task["name"]: task["state_type"]
        for task in API.of(site).http.post("/task_runs/filter", json=asked).json()
    }


@pytest.mark.slow
@pytest.mark.parametrize("where", [(), ("--here",)])
def test_a_cheap_stage_is_rerun_here_and_nothing_else(site: Site, where: tuple[str, ...]) -> None:
    times = {table.address: table.recipe["started_at"] for table in Store(store(site)).tables("c")}
    said = selfplay(site, "rerun", "c", "screenings.near", "--only", *where)
    assert "in this process: 1 stage(s) that took" in said
    now = {table.address: table.recipe["started_at"] for table in Store(store(site)).tables("c")}
    assert {address for address in times if times[address] != now[address]} == {"c/screenings.near"}
    run, log = last_run(site)
    assert (
        run["state_type"] == "COMPLETED"
        and run["parameters"]["rerun"]["stage"] == "screenings.near"
    )
    assert "rerun: c/screenings.near" in log
    assert task_runs(site, run) == {"screenings.near": "COMPLETED"}


@pytest.mark.slow
def test_work_of_more_than_a_moment_goes_to_a_worker(site: Site) -> None:
    said = selfplay(site, "rerun", "c", "duplicates", "--dependents")
    assert "in this process" not in said and "is running" in said and "completed" in said
    run, log = last_run(site)
    assert run["state_type"] == "COMPLETED" and any(
        "requested: c/duplicates was rerun" in line for line in log
    )


@pytest.mark.slow
def test_here_is_the_whole_of_prefect(site: Site) -> None:
    """Its tasks are recorded like a worker's."""
    again(site, "--from", "screenings.near", "--here")
    run, _ = last_run(site)
    tasks = task_runs(site, run)
    assert {"screenings.near", "documents.prepared"} <= tasks.keys()
    assert set(tasks.values()) == {"COMPLETED"} == {run["state_type"]}


@pytest.mark.slow
def test_a_flow_run_here_that_fails_is_recorded_as_failed(site: Site) -> None:
    duplicates = Store(store(site)).get("c/duplicates")
    part = duplicates.folder / duplicates.parts[0]
    before = part.read_bytes()
    try:
        part.write_bytes(b"")
        with pytest.raises(AssertionError, match="were published"):
            selfplay(site, "rerun", "c", "screenings.near", "--only")
        run, log = last_run(site)
        assert run["state_type"] == "FAILED" and "were published" in log[-1]
        assert "were published" in run["state"]["message"]
    finally:
        part.write_bytes(before)


@pytest.mark.slow
def test_a_deployment_is_run_by_prefects_own_means(site: Site) -> None:
    environment = {**os.environ, **site.environment()}
    command = [
        str(Path(sys.executable).parent / "prefect"),
        "deployment",
        "run",
        "prepare-corpus/text",
        "--watch",
    ]
    parameters = ["-p", "run=own", "-p", f"corpus={site.home.parent / 'texts'}"]
    job = ["--job-variable", f'env={{"SELFPLAY_STORE": "{store(site)}"}}']
    done = subprocess.run(
        [*command, *parameters, *job],
        env=environment,
        cwd=site.root,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Store(store(site)).find("own/documents.prepared")
