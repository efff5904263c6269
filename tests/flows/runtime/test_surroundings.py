"""A test sees nothing of the user's: neither shell nor store nor services."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from flows.app.service.site import Site
from flows.runtime.store_root import SOURCE, store_root
from tests.support import another_user, surroundings


def test_store_services_home_and_temporary_folder_are_the_tests_own(tmp_path: Path) -> None:
    assert store_root().is_relative_to(tmp_path)
    assert Site.here().home.is_relative_to(tmp_path)
    assert Site.here().port != Site(home=tmp_path).port
    assert Path.home().is_relative_to(tempfile.gettempdir())
    assert not any(Path(os.environ[name]).is_relative_to(SOURCE) for name in ("HOME", "TMPDIR"))


def test_nothing_of_a_hostile_shell_gets_through() -> None:
    assert not any(surroundings.KEPT.fullmatch(name) for name in another_user.SHELL)
    assert not any(os.environ.get(name) == value for name, value in another_user.SHELL.items())


@pytest.mark.parametrize("place", ["store/runs/micro/config.json", "prefect/pids/server.json"])
def test_who_opens_what_is_the_users_is_named(place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        open(SOURCE / "data" / place).close()
    assert surroundings._touched == [str(SOURCE / "data" / place)]
    surroundings._touched.clear()
