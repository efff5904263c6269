"""Send updates, evaluations and alarms of a run to trackio or Weights & Biases, as they are
published.

Tracking is off by default and reads only published tables. It is not part of any recipe, nor of the
configuration that identifies a run, so nothing becomes stale if it is turned on or off between two
starts of a run. Tables published earlier are sent as the flow reaches them.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from flows.settings.profile import Sink
from tasks.monitors.monitor import Alarm
from warehouse.schemas import EVALUATIONS, UPDATES, Row
from warehouse.store import Store
from warehouse.table import Table

PROJECT = "selfplay"
SENT = "tracked.json"  # beside a run's tables: each sink's received tables, by address and content
log = logging.getLogger("selfplay")


@contextlib.contextmanager
def tracked(sink: Sink, store: Store, run: str, settings: Row) -> Iterator[None]:
    """Send every table that the flow reaches to `sink`.

    Raises ValueError if the sink is not installed, or cannot start.
    """
    if sink == "none":
        yield
        return
    tracker = Tracker(sink, start(sink, store, run, settings), store, run)
    store.watchers.append(tracker.see)
    try:
        yield
    except Alarm as alarm:
        title = f"{run}: {alarm.metric}"
        text = str(alarm)
        tracker.send(lambda library: library.alert(title=title, text=text))
        raise
    finally:
        store.watchers.remove(tracker.see)
        tracker.send(lambda library: library.finish())


def start(sink: Sink, store: Store, run: str, settings: Row) -> ModuleType:
    """The library, with a run of this name begun or resumed. Raises ValueError as `tracked`
    does."""
    try:
        library = importlib.import_module(sink)
    except ImportError as problem:
        raise ValueError(
            f'tracking = "{sink}" needs a package that is not installed ({problem}):'
            f" .venv/bin/python -m pip install {sink}, or leave the setting out"
        ) from problem
    try:
        if sink == "wandb":
            folder = store.root / "logs" / run
            folder.mkdir(parents=True, exist_ok=True)
            library.init(
                project=PROJECT,
                name=run,
                config=settings,
                resume="allow",
                id=run,
                dir=str(folder),
            )
        else:
            library.init(project=PROJECT, name=run, config=settings, resume="allow")
    # no login, no network, a full disk: each library has its own errors
    except Exception as problem:
        raise ValueError(f'tracking = "{sink}" cannot start: {problem}') from problem
    return library


class Tracker:
    """Sends each table once. A sink that fails is not used again until the next start; the run
    continues."""

    def __init__(self, sink: Sink, library: ModuleType, store: Store, run: str) -> None:
        self.sink = sink
        self.library = library
        self.store = store
        self.run = run
        self.sent: dict[str, dict[str, str]] = store.kept(run, SENT) or {}
        self.failed = False

    def see(self, table: Table) -> None:
        """Send a table that was made or found fresh, unless the sink already has it."""
        if table.schema not in (UPDATES, EVALUATIONS):
            return
        already = self.sent.setdefault(self.sink, {})
        if already.get(table.address) == table.content_hash:
            return
        for metrics in points(table):
            self.send(lambda library, metrics=metrics: library.log(metrics))
        if not self.failed:
            already[table.address] = table.content_hash
            self.store.keep(self.run, SENT, self.sent)

    def send(self, call: Callable[[Any], Any]) -> None:
        """Call the library, unless it failed before."""
        if self.failed:
            return
        try:
            call(self.library)
        except Exception as problem:
            self.failed = True
            log.warning(
                "%s failed: %s. The run continues; what was not sent is sent at its next start",
                self.sink,
                problem,
            )


def points(table: Table) -> Iterator[dict[str, float]]:
    """The points of one table: one per optimizer step, or one with all metrics of an evaluation."""
    place = {"at/iteration": float(table.at.iteration or 0), "at/step": float(table.at.step or 0)}
    if table.schema is UPDATES:
        for row in table.rows():
            yield place | {f"{row['role']}/{name}": v for name, v in row["metrics"].items()}
        return
    scores = {f"{row['benchmark']}/{row['metric']}": row["score"] for row in table.rows()}
    known = {name: score for name, score in scores.items() if score is not None}
    if known:
        yield place | known
