"""`tracking`: updates, evaluations and alarms in trackio or Weights & Biases, without making any
table stale."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flows.runtime.tracking import points, tracked
from flows.settings.profile import MethodSettings
from tasks.monitors.monitor import Alarm
from tests.flows.rzero.test_played import CANDIDATES, TRAINING, play
from tests.support.rows import publish, row
from warehouse.query import query
from warehouse.store import Store

PROJECT = Path(__file__).resolve().parents[3]
COMPANIONS = PROJECT / ".companions"  # `make companions`
NONE = {"models": {"base": "m"}, "engine": {"max_model_len": 8}}


class Library(ModuleType):
    """The common interface of trackio and wandb, which records calls instead of showing them."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__("trackio")
        self.said: list[tuple[str, Any]] = []
        self.broken = broken

    def init(self, **about: Any) -> None:
        self.said.append(("init", about))

    def log(self, metrics: dict[str, float]) -> None:
        if self.broken:
            raise ConnectionError("no network")
        self.said.append(("log", metrics))

    def alert(self, **about: str) -> None:
        self.said.append(("alert", about))

    def finish(self) -> None:
        self.said.append(("finish", None))

    def logged(self) -> list[dict[str, float]]:
        return [what for kind, what in self.said if kind == "log"]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setitem(sys.modules, "trackio", made := Library())
    return made


def lay(store: Store, iteration: int) -> list[Any]:
    """An update and an evaluation."""
    place = store.run("mine").iteration(iteration).phase("p").step(2)
    metrics = {"loss": 0.25, "kl": 0.5}
    scores = [
        row("evaluations", benchmark="b", metric=m, score=s)
        for m, s in (("score", 0.75), ("unread", None))
    ]
    return [
        publish(place, "updates", row("updates", role="solver", metrics=metrics)),
        publish(place, "tasks", row("tasks", task_id="t")),
        publish(place, "evaluations", *scores),
    ]


def test_an_update_is_a_point_a_step_and_an_evaluation_one_without_what_was_not_measured(
    store,
) -> None:
    update, _, evaluation = lay(store, 3)
    assert list(points(update)) == [
        {"at/iteration": 3, "at/step": 2, "solver/loss": 0.25, "solver/kl": 0.5}
    ]
    assert list(points(evaluation)) == [{"at/iteration": 3, "at/step": 2, "b/score": 0.75}]


def test_each_table_is_sent_once_over_restarts(store, library) -> None:
    for number in (1, 2):
        with tracked("trackio", store, "mine", {"seed": 1}):
            for table in [*lay(store, 1), *(lay(store, 2) if number == 2 else [])]:
                for watch in store.watchers:
                    watch(table)
    assert [point["at/iteration"] for point in library.logged()] == [1, 1, 2, 2]
    assert store.watchers == []
    about = {"project": "selfplay", "name": "mine", "config": {"seed": 1}, "resume": "allow"}
    assert [kind for kind, _ in library.said if kind != "log"] == [
        "init",
        "finish",
        "init",
        "finish",
    ]
    assert library.said[0] == ("init", about)


def test_an_alarm_is_sent_and_stops_the_run_all_the_same(store, library) -> None:
    with pytest.raises(Alarm), tracked("trackio", store, "mine", {}):
        raise Alarm("mine/iter-001/evaluations", "copy", 0.9, 0.5, "Look.")
    told = {
        "title": "mine: copy",
        "text": "mine/iter-001/evaluations: copy is 0.9, the limit is 0.5. Look.",
    }
    assert ("alert", told) in library.said


def test_a_sink_that_fails_stops_nothing_and_is_sent_the_rest_at_the_next_start(
    store, library, caplog
) -> None:
    tables = lay(store, 1)
    library.broken = True
    logging.getLogger("selfplay").propagate = True
    with caplog.at_level(logging.WARNING, "selfplay"):
        for _ in range(2):
            with tracked("trackio", store, "mine", {}):
                for table in tables:
                    store.watchers[0](table)
            library.broken = False
    assert [record.getMessage() for record in caplog.records] == [
        "trackio failed: no network. The run continues; what was not sent is sent at its next start"
    ]
    assert len(library.logged()) == 2


def test_a_sink_that_is_not_installed_or_cannot_start_is_said_at_once(
    store, library, monkeypatch
) -> None:
    monkeypatch.setattr(library, "init", lambda **_: 1 / 0)
    with pytest.raises(ValueError, match='tracking = "trackio" cannot start: division by zero'):
        tracked("trackio", store, "mine", {}).__enter__()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb, or leave the setting out"):
        tracked("wandb", store, "mine", {}).__enter__()


def test_it_is_no_part_of_the_configuration_that_a_run_is_known_by() -> None:
    on = MethodSettings.model_validate({**NONE, "tracking": "wandb"})
    assert on.tracking == "wandb" and "tracking" not in on.model_dump()
    with pytest.raises(ValueError, match="tracking"):
        MethodSettings.model_validate({**NONE, "tracking": "excel"})


def test_turned_on_after_a_run_it_gets_everything_and_nothing_is_made_again(
    request, tmp_path
) -> None:
    store, script = play(tmp_path, *TRAINING, *CANDIDATES)
    library = request.getfixturevalue("library")  # after the trainer has looked for such libraries
    asked = len(script.asked)
    made = {table.address: table.recipe["started_at"] for table in store.tables("r")}
    again, script = play(tmp_path, tracking="trackio")
    assert asked and not script.asked
    assert {table.address: table.recipe["started_at"] for table in again.tables("r")} == made
    logged = library.logged()
    updates = query(
        store.root, "select role, metrics['loss'] as loss from updates order by role, step"
    )
    for role in ("challenger", "solver"):
        sent = [point[f"{role}/loss"] for point in logged if f"{role}/loss" in point]
        assert sent == [update["loss"] for update in updates if update["role"] == role]


REAL = """
import sys
sys.path.append(sys.argv[3])
from flows.runtime.tracking import tracked
from tests.flows.runtime.test_tracking import lay
from warehouse.store import Store
store = Store(sys.argv[2])
with tracked(sys.argv[1], store, "mine", {"seed": 1}):
    for table in lay(store, 1):
        store.watchers[0](table)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not COMPANIONS.exists(), reason="trackio and wandb are not installed: make companions"
)
@pytest.mark.parametrize("sink", ["trackio", "wandb"])
def test_the_real_libraries_take_it(sink, tmp_path) -> None:
    (installed,) = COMPANIONS.glob("lib/python3*/site-packages")
    environment = {
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
    subprocess.run(
        [sys.executable, "-c", REAL, sink, str(tmp_path / "store"), str(installed)],
        env={**os.environ, **environment},
        cwd=PROJECT,
        check=True,
        timeout=300,
    )
    if sink == "trackio":
        with sqlite3.connect(tmp_path / "trackio" / "selfplay.db") as database:
            stored = [
                bytes(line)
                for (line,) in database.execute("select metrics from metrics order by id")
            ]
        assert len(stored) == 2 and b"solver/loss" in stored[0] and b"b/score" in stored[1]
    else:
        assert list(
            (tmp_path / "store" / "logs" / "mine").glob("wandb/offline-run-*/run-mine.wandb")
        )
