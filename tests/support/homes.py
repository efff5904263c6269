"""Prefect homes of test sites: the first one in a session creates the database, the others copy
it."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from flows.app.service.prepare import prepare
from flows.app.service.site import Site
from flows.runtime.store_root import SOURCE

DATABASE = "prefect.db"


def with_database(home: Path, factory: pytest.TempPathFactory) -> Path:
    """Return `home` with the empty database that Prefect's migrations create.

    The migrations take as long as several tests.
    """
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    home.mkdir(parents=True)
    shutil.copy(_made(shared / "empty"), home)
    return home


def _made(folder: Path) -> Path:
    """Create the database once in a session; other processes wait for it."""
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            prepare(Site(SOURCE, folder, port_choice=1024))  # nothing listens there
            (folder / "done").touch()
    return folder / DATABASE
