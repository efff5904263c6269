"""A method whose folder lies outside the project works like a built-in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.command.parameters import check_settings, find_deployment, find_flow, find_method
from flows.app.service import services
from flows.app.service.api import API
from flows.app.service.deployments import as_prefect_stores_it, declared, outside_folders
from flows.app.service.site import Site
from flows.runtime.record import last_request
from flows.runtime.store_root import open_store
from tests.support.homes import with_database
from tests.support.stub_project import free_port
from warehouse import code

SELFPLAY = str(Path(sys.executable).parent / "selfplay")
FLOW = "my-counting-iteration"
FILES = {
    "config.py": """
from flows.settings.profile import Settings

class Config(Settings):
    count: int = 3
""",
    "steps.py": """
from tasks.stage import stage
from tests.support.rows import row
from warehouse.schemas import SAMPLES

STEP = 1

@stage(SAMPLES)
def numbers(*, count: int):
    for i in range(count):
        yield row("samples", sample_id=name(i * STEP))

def name(number: int) -> str:
    return str(number)
""",
    "flow.py": '''
"""Counting: one sample after the other.

Each has a number.
"""
from flows.method import method
from flows.run import Run
from my_counting.config import Config
from my_counting.steps import numbers

@method(Config)
def my_counting_iteration(run: Run[Config]) -> None:
    """Algorithm 1."""
    numbers(run.place, count=run.cfg.count)
''',
    "profiles/micro.toml": "",
    "profiles/large.toml": "count = 100\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A method's folder in the caller's, with a store and a site of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("SELFPLAY_PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(code, "PACKAGES", code.PACKAGES)
    folder = tmp_path / "my_counting"
    write(folder)
    yield folder
    for module in [name for name in sys.modules if name.partition(".")[0] == "my_counting"]:
        del sys.modules[module]


def write(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def play(folder: Path, run: str = "mine", profile: str = "micro") -> None:
    find_method(find_flow(f"./{folder.name}"))(profile=profile, run=run)


def ids(run: str) -> list[str]:
    [table] = open_store().tables(run)
    return [row["sample_id"] for row in table.rows()]


def test_a_path_is_the_name_of_its_flow_from_then_on(folder: Path) -> None:
    with pytest.raises(ValueError, match=f"no flow '{FLOW}'"):
        find_deployment(FLOW, "micro")
    assert find_flow("./my_counting") == FLOW == find_flow(str(folder))
    assert find_flow("spell-iteration") == "spell-iteration"
    assert outside_folders(Site.here()) == [folder]
    assert find_deployment(FLOW, "large")["description"].startswith("Counting: one sample after")


def test_its_profiles_are_deployed_as_a_package_of_its_own_name(folder: Path) -> None:
    site = Site.here()
    find_flow("./my_counting")
    ours = [
        d for d in declared(site) if d["name"] in ("micro", "large") and "my_counting" in d["tags"]
    ]
    assert [d["name"] for d in ours] == ["large", "micro"]
    assert {d["entrypoint"] for d in ours} == {f"{folder}/flow.py:my_counting_iteration"}
    entrypoints = {as_prefect_stores_it(d)[1]["entrypoint"] for d in declared(site)}
    assert "my_counting.flow:my_counting_iteration.flow" in entrypoints
    assert "flows.scope.flow:scope_iteration.flow" in entrypoints


def test_a_run_is_played_and_its_request_names_the_folder(folder: Path) -> None:
    play(folder)
    assert ids("mine") == ["0", "1", "2"]
    request = last_request(open_store(), "mine")
    assert (request.flow, request.folder) == (FLOW, str(folder))
    play(folder, "more", "large")
    assert len(ids("more")) == 100


def test_its_settings_are_checked_before_anything_starts(folder: Path) -> None:
    deployment = find_deployment(find_flow("./my_counting"), "micro")
    parameters = {"profile": "micro", "overrides": {"count": 4}}
    assert check_settings(deployment, parameters).count == 4
    with pytest.raises(ValueError, match='count: must be a number, not "4"'):
        check_settings(deployment, {"profile": "micro", "overrides": {"count": "4"}})


def test_its_code_is_in_the_recipe(folder: Path) -> None:
    play(folder)
    [table] = open_store().tables("mine")
    assert {"my_counting.steps.numbers", "my_counting.steps.name", "my_counting.steps.STEP"} <= set(
        table.recipe["code"]
    )


def selfplay(*arguments: str) -> str:
    done = subprocess.run([SELFPLAY, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_why_follows_a_change_of_its_code_even_if_nothing_but_the_run_knows_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(folder)
    result = CliRunner().invoke(cli.main, ["why", "mine"])
    assert result.stdout == "all 1 stages are fresh\n", result.output
    (Site.here().home / "methods.json").unlink()
    steps = folder / "steps.py"
    steps.write_text(steps.read_text().replace("STEP = 1", "STEP = 2"))
    # Python compiles a file again if its size or the second of its last change is another
    os.utime(steps, (time.time() + 10, time.time() + 10))
    told = selfplay("why", "mine")
    assert "1 of 1 stages would be rebuilt" in told and "my_counting.steps.STEP" in told


@pytest.mark.parametrize("missing", ["config.py", "flow.py"])
def test_a_folder_that_is_no_method_is_refused(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ValueError, match=f"{folder} is no method: it has no {missing}"):
        find_flow("./my_counting")


def test_a_name_that_python_knows_otherwise_is_refused(folder: Path) -> None:
    write(folder.parent / "json")
    with pytest.raises(
        ValueError, match=r"cannot be imported as 'json', which is .*rename the fol"
    ):
        find_flow("./json")
    write(folder.parent / "my-counting")
    with pytest.raises(ValueError, match="cannot be imported as 'my-counting': name it by letters"):
        find_flow("./my-counting")


def test_a_flow_of_the_project_is_not_replaced(folder: Path) -> None:
    flow = folder / "flow.py"
    flow.write_text(flow.read_text().replace("my_counting_iteration", "spell_iteration"))
    with pytest.raises(ValueError, match="spell-iteration is a flow of this project"):
        find_flow("./my_counting")
    assert json.dumps(outside_folders(Site.here())) == "[]"


def test_a_folder_of_the_project_is_the_flow_that_it_is(folder: Path) -> None:
    assert find_flow(str(Site.here().root / "flows" / "spell")) == "spell-iteration"
    assert outside_folders(Site.here()) == []


@pytest.mark.slow
def test_a_worker_runs_it_and_reruns_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = with_database(folder.parent / "served", tmp_path_factory)
    monkeypatch.setenv("SELFPLAY_PREFECT_HOME", str(home))
    monkeypatch.setenv("SELFPLAY_PREFECT_PORT", str(free_port()))
    site = Site.here()
    try:
        told = selfplay("run", "./my_counting", "--run", "mine")
        assert "completed" in told and "in this process" not in told
        assert ids("mine") == ["0", "1", "2"]
        assert f"{FLOW}/micro" in API.of(site).deployments()
        monkeypatch.chdir(os.sep)
        assert "completed" in selfplay("rerun", "mine", "samples", "--dependents")
        assert "in this process: all 1 stages are fresh" in selfplay("run", FLOW, "--run", "mine")
    finally:
        services.down(site)
