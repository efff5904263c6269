"""A method as a data engine: its proposer, gates, filters and judges make tasks without training.

The tables are those of a run, so they can be resumed, queried, audited, labelled and exported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flows.method import Method, opened
from flows.pilot.play import PilotRun, check_untrained, of_first_step
from flows.run import Run
from flows.runtime.record import open_run
from flows.runtime.request import Request
from flows.runtime.store_root import open_store
from flows.runtime.unread import UnreadError
from flows.settings import profile as profiles
from flows.settings.profile import MethodSettings
from tasks.monitors.monitor import Alarm
from tasks.stage import Tables, rows_of
from warehouse.schemas import ROLLOUTS
from warehouse.store import Place, Store

WANTED = "tasks.json"  # beside a run that only makes tasks: how many it should make
PATIENCE = 3  # iterations in a row that keep nothing new


@dataclass(frozen=True)
class TasksRun(PilotRun):
    """A run that trains nothing and plays iterations until its filters have kept `target` tasks."""

    target: int = 0
    kept: dict[str, None] = field(default_factory=dict)

    def iterations(self, first: int = 1) -> Iterator[tuple[int, Place]]:
        """As many iterations as it takes, stopping after `PATIENCE` in a row that kept nothing
        new."""
        t = first
        num_in_vain = 0
        while len(self.kept) < self.target and num_in_vain < PATIENCE:
            before = len(self.kept)
            yield t, self.place.iteration(t)
            num_in_vain = num_in_vain + 1 if len(self.kept) == before else 0
            t += 1

    def watch_pool(
        self, iteration: Place, policy: str, chosen: Tables, passed: tuple[str, ...] = ()
    ) -> None:
        """Watch as a normal run does, and remember the ids of the tasks that the filter kept."""
        super().watch_pool(iteration, policy, chosen, passed)
        for row in rows_of(chosen):
            if row["kept"]:
                self.kept[row["task_id"]] = None


@dataclass(frozen=True)
class TaskCounts:
    """The outcome of making tasks: how many were kept, what stopped it early, and what it cost.

    `alarms`: measurements beyond a limit, which would have stopped a run that trains.
    """

    num_kept: int
    stopped: str | None
    alarms: tuple[str, ...]
    seconds: float
    num_tokens: int

    @property
    def seconds_per_task(self) -> float:
        """Seconds spent in stages per kept task; NaN if none was kept."""
        return self.seconds / self.num_kept if self.num_kept else math.nan

    @property
    def tokens_per_task(self) -> float:
        """Sampled tokens per kept task; NaN if none was kept."""
        return self.num_tokens / self.num_kept if self.num_kept else math.nan


def make_tasks(method: Method, request: Request, target: int, force: bool = False) -> TaskCounts:
    """Play a method without updates until `target` tasks are kept.

    Each phase has one step per iteration, and nothing is scored on held-out tasks. Repeating the
    request continues where it stopped, and a larger `target` adds to what was made.

    Raises ValueError as `Method.run` does, for a flow that trains no model, and for a run that has
    been trained.
    """
    cfg = method.load(request)
    if not isinstance(cfg, MethodSettings):
        raise ValueError(f"{request.flow} writes no tasks: name a method")
    check_untrained(open_store(), request.run)
    settings = {**request.settings, **of_first_step(cfg)}
    with open_run(request, cfg, force=force) as store:
        store.keep(request.run, WANTED, {"keep": target})
        stopped = None
        one_step = profiles.load(method.config, request.profile, settings)
        with opened(one_step, store, request.run, kind=kind_of(target)) as run:
            assert isinstance(run, TasksRun)
            try:
                method.play(run)
            except (Alarm, UnreadError) as stop:
                stopped = str(stop)
            seconds, num_tokens = cost(store, request.run)
            return TaskCounts(
                num_kept=len(run.kept),
                stopped=stopped,
                alarms=tuple(dict.fromkeys(map(str, run.notes.alarms))),
                seconds=seconds,
                num_tokens=num_tokens,
            )


def kind_of(target: int) -> Callable[..., Run[Any]]:
    """A constructor of runs that stop at `target` kept tasks."""
    return partial(TasksRun, target=target)


def cost(store: Store, run: str) -> tuple[float, int]:
    """The seconds that all stages of a run took, and the number of tokens that they sampled."""
    tables = list(store.tables(run))
    num_tokens = sum(
        row["num_sampled_tokens"]
        for table in tables
        if table.schema is ROLLOUTS and table.has_rows
        for row in table.arrow.select(["num_sampled_tokens"]).to_pylist()
    )
    return sum(table.recipe["seconds"] for table in tables), num_tokens
