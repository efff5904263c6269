"""The wheel, installed in a separate environment outside the checkout: the demo runs to its end,
and its files are only in SELFPLAY_HOME."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.runtime.store_root import SOURCE
from tests.end_to_end.test_scope import SMALL
from tests.support.stub_project import free_port

pytestmark = pytest.mark.slow

PACKAGES = ("flows", "tasks", "warehouse", "corpus_prep")
BUILT_IN = ("english", "micro")
# folders of the checkout's files; the rest of `data` is the user's, or of other tests meanwhile
FILES = (*PACKAGES, "data/english", "data/micro")
USERS = ("SELFPLAY_STORE", "SELFPLAY_PREFECT_HOME", "SELFPLAY_PREFECT_PORT", "PYTHONPATH")


def listing(*folders: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time (ns) of the files in folders, apart from compiled modules."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and the user's folder."""

    environment: Path
    folder: Path
    port: int

    @property
    def packages(self) -> Path:
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.environment / "lib" / python / "site-packages"

    @property
    def home(self) -> Path:
        return self.folder / "home of selfplay"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the user's folder."""
        variables = {name: text for name, text in os.environ.items() if name not in USERS}
        variables = {
            name: text for name, text in variables.items() if not name.startswith("PREFECT_")
        }
        variables |= {"SELFPLAY_HOME": str(self.home), "SELFPLAY_PREFECT_PORT": str(self.port)}
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def selfplay(self, *arguments: str) -> str:
        """The output of a command, which has to succeed."""
        done = self.run("selfplay", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(folder: Path) -> Path:
    """A wheel of the checkout's files, built in a copy and without the network."""
    copy = folder / "source"
    compiled = shutil.ignore_patterns("__pycache__")
    for package in PACKAGES:
        shutil.copytree(SOURCE / package, copy / package, ignore=compiled)
    for name in BUILT_IN:
        shutil.copytree(SOURCE / "data" / name, copy / "data" / name, ignore=compiled)
    for file in ("pyproject.toml", "README.md", "LICENSE", "data/__init__.py"):
        shutil.copy(SOURCE / file, copy / file)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--quiet", "--wheel-dir", folder, copy], check=True)
    [wheel] = folder.glob("*.whl")
    shutil.rmtree(copy)
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """An environment with the wheel and the running one's packages, but without this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder)
    venv.create(folder / "environment", with_pip=False, symlinks=True)
    user = folder / "user"
    user.mkdir()
    installed = Installed(folder / "environment", user, free_port())
    install = [sys.executable, "-m", "pip", "--python", installed.environment, "install"]
    # run elsewhere, since pip would mistake metadata in this folder for an installed package
    subprocess.run([*install, "--quiet", "--no-deps", "--no-index", wheel], cwd=folder, check=True)
    # a path that a .pth file names is searched, but .pth files in it, such as ours, are not read
    (installed.packages / "below.pth").write_text(sysconfig.get_path("purelib"))
    yield installed
    installed.run("selfplay", "down")


def test_a_wheel_runs_the_demo_and_writes_only_to_the_users_workspace(
    installed: Installed,
) -> None:
    where = "import flows, tasks, warehouse, corpus_prep, data; print(flows.__file__)"
    imported = Path(installed.run("python", "-c", where).stdout.strip())
    assert imported == installed.packages / "flows" / "__init__.py"
    code = listing(installed.packages)
    checkout = listing(*(SOURCE / folder for folder in FILES))

    nothing = installed.selfplay("status")
    assert f"runs in {installed.home}/data/store: none yet; `selfplay demo`" in nothing
    assert not installed.home.exists()

    settings = [f"--set={key}={value}" for key, value in SMALL.items()]
    said = installed.selfplay("demo", *settings)
    assert "micro is completed" in said
    [title] = [line for line in said.splitlines() if "held-out scores" in line]
    scores = said.split(title)[1]
    assert all(column in scores for column in ("iteration", "standard_error", "micro"))
    report = installed.home / "data" / "store" / "reports" / "micro" / "iter-001.html"
    assert f"report: {report}" in said and report.is_file()

    assert "rollouts.solver" in installed.selfplay("status", "micro", "--all")
    counted = installed.selfplay(
        "sql", "select count(*) as n from evaluations where run = 'micro' and iteration = 1"
    )
    assert any(character in counted for character in "123456789")
    assert "are fresh" in installed.selfplay("why", "micro")
    assert "intact" in installed.selfplay("verify", "micro")

    assert listing(installed.packages) == code
    assert listing(*(SOURCE / folder for folder in FILES)) == checkout
    assert [path.name for path in installed.folder.iterdir()] == [installed.home.name]
    assert sorted(path.name for path in installed.home.iterdir()) == [".env", "data"]


def test_texts_of_others_come_with_their_sources_and_licences(installed: Installed) -> None:
    folder = installed.packages / "data" / "english"
    described = (folder / "README.md").read_text(encoding="utf-8")
    texts = sorted(file.name for file in folder.glob("*.jsonl"))
    assert len(texts) >= 9
    assert [name for name in texts if f"| {name} |" not in described] == []
    [metadata] = installed.packages.glob("selfplay_flows-*.dist-info/METADATA")
    licence = "License-Expression: Apache-2.0 AND CC-BY-SA-3.0 AND CC-BY-4.0\n"
    assert licence in metadata.read_text(encoding="utf-8")


def test_a_file_that_a_benchmark_gives_as_its_origin_is_there(installed: Installed) -> None:
    named = set[str]()
    for package in ("data", "flows"):
        for file in (installed.packages / package).rglob("*.toml"):
            origin = str(tomllib.loads(file.read_text(encoding="utf-8")).get("origin", ""))
            named |= set(re.findall(r"(?<!\S)data/\S+\.md", origin))
    assert "data/english/README.md" in named
    assert [name for name in named if not (installed.packages / name).is_file()] == []


def test_a_method_of_the_users_own_is_a_folder_beside_them(installed: Installed) -> None:
    written = installed.selfplay("new", "my_idea")
    assert "my_idea/flow.py\n" in written and "selfplay run ./my_idea" in written
    flow = (installed.folder / "my_idea" / "flow.py").read_text()
    assert "from my_idea.config import Config" in flow
    refused = installed.run("selfplay", "run", "./my_idea", "--set", "steps=none")
    assert refused.returncode == 1 and "steps: Input should be a valid integer" in refused.stderr
    taken = installed.run("selfplay", "new", "json")
    assert taken.returncode == 1 and "a Python package has the name" in taken.stderr
    shutil.rmtree(installed.folder / "my_idea")
