"""Where the user's files are, and which of the packages that models need are missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flows.plan import preflight
from flows.runtime import store_root
from flows.runtime.store_root import SOURCE, WORKSPACE, find_workspace
from flows.rzero.config import Config
from flows.settings import profile


def test_the_workspace_of_a_checkout_is_the_checkout_whatever_the_shell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELFPLAY_HOME", str(tmp_path))
    assert find_workspace(SOURCE, in_checkout=True) == SOURCE == WORKSPACE


def test_the_workspace_of_an_installed_package_is_named_or_in_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("SELFPLAY_HOME", raising=False)
    assert find_workspace(tmp_path, in_checkout=False) == tmp_path / "user" / ".selfplay"
    monkeypatch.setenv("SELFPLAY_HOME", "")
    assert find_workspace(tmp_path, in_checkout=False) == tmp_path / "user" / ".selfplay"
    monkeypatch.setenv("SELFPLAY_HOME", "~/runs")
    assert find_workspace(tmp_path, in_checkout=False) == tmp_path / "user" / "runs"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SELFPLAY_HOME", "here")
    assert find_workspace(tmp_path, in_checkout=False) == tmp_path / "here"


def test_the_workspace_of_an_installed_package_has_links_to_its_built_in_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    monkeypatch.setattr(store_root, "IN_CHECKOUT", False)
    monkeypatch.setattr(store_root, "WORKSPACE", workspace)
    (workspace / "data").mkdir(parents=True)
    (workspace / "data" / "micro").symlink_to(tmp_path / "an environment that is gone")
    (workspace / "data" / "english").mkdir()  # the user's own
    for _ in range(2):
        store_root.open_workspace()
        assert (workspace / "data" / "micro").resolve() == SOURCE / "data" / "micro"
        assert not (workspace / "data" / "english").is_symlink()
        assert sorted(path.name for path in (workspace / "data").iterdir()) == ["english", "micro"]


@pytest.mark.parametrize(
    ("in_checkout", "how"),
    [
        (True, "`make install`, or"),
        (False, r"`uv pip install --torch-backend=cpu 'selfplay-flows\[cpu\]'`, or"),
    ],
)
def test_packages_that_models_need_and_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_checkout: bool, how: str
) -> None:
    cfg = profile.load(Config, "micro")
    for name in ("peft", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.setattr(preflight, "IN_CHECKOUT", in_checkout)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(ValueError, match=f"need trl, vllm, which is not installed: {how}"):
            preflight.check_packages(cfg)
