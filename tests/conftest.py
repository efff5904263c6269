"""Fixtures for every test: its own surroundings, its own store, and a place in it."""

import sys
from pathlib import Path

import pytest

from tests.support import surroundings

surroundings.separate()
sys.modules.setdefault("vllm", None)  # type: ignore[arg-type]  # TRL would import it, which takes as long again

from flows.runtime.store_root import store_root  # noqa: E402
from tests.support import light  # noqa: E402
from warehouse.schemas import TABLES, define  # noqa: E402
from warehouse.store import Place, Store  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--light",
        action="store_true",
        help="leave out what needs torch, vLLM and other large packages",
    )


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (surroundings, light):  # apply to doctests outside this folder, too
        config.pluginmanager.register(plugin, plugin.__name__)


LONGEST = (
    "end_to_end/test_scope.py",
    "end_to_end/test_services.py",
    "end_to_end/test_chaos.py",
    "tasks/training/test_group.py",
    "flows/ssp/test_engine.py",
    "tasks/training/test_grpo_processes.py",
    "end_to_end/test_wheel.py",
    "end_to_end/test_spell.py",
    "tasks/engines/test_engine_vllm.py",
    "end_to_end/test_here.py",
    "end_to_end/test_english.py",
    "flows/test_readme.py",
    "end_to_end/test_eapo.py",
    "end_to_end/test_mae.py",
    "end_to_end/test_rzero.py",
    "end_to_end/test_spice.py",
    "end_to_end/test_ssp.py",
    "flows/plan/test_memory.py",
    "end_to_end/test_recovery.py",
    "app/test_outside_method.py",
    "tasks/training/test_preference.py",
    "flows/environments/test_loaders.py",
    "tasks/engines/test_engine_openai.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order files: those of fast tests alone come first, then the slow ones by duration, longest
    first. Processes take them in this order and so end at about the same time."""
    place = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST)}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path in slow, place.get(item.path, len(place))))


@pytest.fixture
def store() -> Store:
    """The store that commands and flows use in this test."""
    return Store(store_root())


@pytest.fixture
def place(store: Store) -> Place:
    """`runs/r/iter-001/solver/step-002`."""
    return store.run("r").iteration(1).phase("solver").step(2)


@pytest.fixture
def new_table(monkeypatch):
    """`define` for this test only."""

    def made(name, *args, **kwargs):
        monkeypatch.setitem(TABLES, name, None)  # removed again afterwards
        return define(name, *args, **kwargs)

    return made
