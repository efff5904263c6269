"""What every test may use: surroundings, a store and a place in it that are its own."""

import pytest

from tests.support import surroundings

surroundings.separate()

from flows.service.site import store_root  # noqa: E402
from tests.support import light  # noqa: E402
from warehouse.schemas import TABLES, define  # noqa: E402
from warehouse.store import Place, Store  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--light", action="store_true", help="leave out what needs torch, vLLM and other large packages")


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (surroundings, light):  # for doctests outside this folder, too
        config.pluginmanager.register(plugin, plugin.__name__)


@pytest.fixture
def store() -> Store:
    """The one that commands and flows use in this test."""
    return Store(store_root())


@pytest.fixture
def place(store: Store) -> Place:
    """`runs/r/iter-001/solver/step-002`."""
    return store.run("r").iteration(1).phase("solver").step(2)


@pytest.fixture
def new_table(monkeypatch):
    """`define` for this test only."""

    def made(name, *args, **kwargs):
        monkeypatch.setitem(TABLES, name, None)  # taken out again afterwards
        return define(name, *args, **kwargs)

    return made
