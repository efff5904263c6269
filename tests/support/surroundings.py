"""Every test has its own surroundings: store, Prefect home and port, home folder, folder for
temporary files.

Neither the user's shell nor what a demo left in `data/` affects a test. Environment variables that
are not in `KEPT` do not reach it, and a test that opens the user's store or Prefect home fails.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.app.service.site import Site
from flows.runtime.store_root import SOURCE
from tests.support.stub_project import free_port

KEPT = re.compile(
    r"(PATH|USER|LOGNAME|TERM|TZ|CI|CC|CXX|CUDA_HOME|LANG|SELFPLAY_TEST_CLUSTER"
    r"|(LC|LD|NVIDIA)_\w+|(PYTHON|PYTEST|COV)\w*)"
)
OPENINGS = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "sqlite3.connect",
}
USERS = tuple(str(SOURCE / "data" / name) for name in ("store", "prefect"))
_touched: list[str] = []
_own: dict[str, str] = {}


def separate() -> None:
    """Give this process its own surroundings. Call it before any library reads the environment."""
    # A shell starts background commands with Ctrl-C ignored; all that tests start would inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # short: Linux limits the paths of sockets in it to 107 characters
    folder = Path(tempfile.mkdtemp(prefix="sp-"))
    # after libraries have cleaned up their files
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    (folder / "home").mkdir()
    caches = (
        Path(os.environ["TMPDIR"]) if "PYTEST_XDIST_WORKER" in os.environ else folder
    ) / "caches"
    _own.update(_site(folder))
    own = {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder),
        # tmp_path is kept
        "PYTEST_DEBUG_TEMPROOT": os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()),
        # a model's class is inspected once for all processes of a session
        "VLLM_CACHE_ROOT": str(caches / "vllm"),
        "MPLCONFIGDIR": str(caches / "matplotlib"),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    os.environ.clear()
    os.environ.update(kept | own | _own)
    os.environ.update(Site.here().environment())  # Prefect reads it when it is imported
    tempfile.tempdir = None
    sys.addaudithook(_watch)


def _site(folder: Path) -> dict[str, str]:
    """Settings of a new site: none of its folders exists yet, and nothing listens on its port."""
    return {
        "SELFPLAY_STORE": str(folder / "store"),
        "SELFPLAY_PREFECT_HOME": str(folder / "prefect"),
        "SELFPLAY_PREFECT_PORT": str(free_port()),
    }


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in OPENINGS and isinstance(arguments[0], str | os.PathLike):
        path = os.path.abspath(os.fspath(arguments[0]))
        if isinstance(path, str) and path.startswith(USERS):
            _touched.append(path)


@pytest.fixture(autouse=True)
def own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A separate store, Prefect home and port for every test that does not share its module's."""
    for name, value in _site(tmp_path).items():
        if os.environ[name] == _own[name]:
            monkeypatch.setenv(name, value)
    yield
    found = sorted(set(_touched))
    _touched.clear()
    assert not found, f"a test touched what is the user's: {', '.join(found[:5])}"
