"""What every test may use: a store of its own, and one thread a process."""

import os

import pytest

for name in ("OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM"):
    os.environ.setdefault(name, "1" if name == "OMP_NUM_THREADS" else "false")

from warehouse.schemas import TABLES, define  # noqa: E402
from warehouse.store import Place, Store  # noqa: E402


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def place(store) -> Place:
    """`runs/r/iter-001/solver/step-002`."""
    return store.run("r").iteration(1).phase("solver").step(2)


@pytest.fixture
def new_table(monkeypatch):
    """`define` for this test only."""

    def made(name, *args, **kwargs):
        monkeypatch.setitem(TABLES, name, None)  # taken out again afterwards
        return define(name, *args, **kwargs)

    return made
