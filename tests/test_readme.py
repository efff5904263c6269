"""The method that the README works through, as it stands there."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

import flows
from flows import profile
from flows.request import Request
from flows.service.deployments import declared
from flows.service.site import SOURCE, Site

BLOCK = re.compile(r"^`(flows/ttrl/[^`]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def ttrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the method, importable as a package of flows."""
    files = dict(BLOCK.findall((SOURCE / "README.md").read_text(encoding="utf-8")))
    assert {Path(name).name for name in files} == {"config.py", "flow.py", "solver.jinja", "micro.toml"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.removesuffix("\n") if path.suffix == ".jinja" else text)
    (tmp_path / "flows" / "ttrl" / "__init__.py").touch()
    monkeypatch.setattr(flows, "__path__", [*flows.__path__, str(tmp_path / "flows")])
    yield tmp_path
    for module in [name for name in sys.modules if name.startswith("flows.ttrl")]:
        del sys.modules[module]


def test_the_worked_method_has_a_profile_and_a_deployment(ttrl: Path) -> None:
    config = importlib.import_module("flows.ttrl.config").Config
    assert profile.load(config, "micro").engine.model == "data/micro/spice"
    [deployment] = declared(Site(ttrl, ttrl / "home"))
    assert deployment["entrypoint"] == "flows/ttrl/flow.py:ttrl_iteration"
    assert deployment["work_pool"] == {"name": "cpu"}


@pytest.mark.slow
def test_the_worked_method_learns(ttrl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from warehouse.query import query

    monkeypatch.setenv("SELFPLAY_STORE", str(ttrl / "store"))
    monkeypatch.chdir(SOURCE)
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    method = importlib.import_module("flows.ttrl.flow").ttrl_iteration
    settings = {"iterations": 1, "evaluation.num_tasks": 240}
    asked = Request(flow="ttrl-iteration", profile="micro", run="mine", overrides=settings)
    method.run(asked)
    scores = query(ttrl / "store", "select iteration, score from evaluations where metric = 'score' order by iteration")
    before, after = (row["score"] for row in scores)
    assert after - before > 0.1  # about three standard errors of 240 answers
    assert all(why is None for _, why in method.inquire(asked, {}).found)
