"""Play the first step of a method without training, to see what it would train on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from flows.method import Method, opened
from flows.run import Player, Run
from flows.runtime.machines import MachinePool
from flows.runtime.record import open_run
from flows.runtime.request import Request
from flows.runtime.store_root import open_store
from flows.runtime.unread import UnreadError
from flows.settings import profile as profiles
from flows.settings.profile import MethodSettings
from tasks.evaluate import Measure
from tasks.models.engine import Policy
from tasks.monitors.monitor import Alarm
from tasks.training.grpo import GRPOSettings
from warehouse.schemas import UPDATES
from warehouse.store import Place, Store, Table

COUNTS = ("iterations", "steps")  # settings for how often a method repeats itself
NO_HELD_OUT_SCORE = {"evaluation.benchmark": "none", "evaluation.benchmarks": []}


@dataclass
class Notes:
    """What happened while a pilot was played.

    `alarms`: alarms that would stop the run before an update. `stopped`: what stopped the pilot
    itself; None if it got through every role. `updates`: the batches that would be trained on.
    """

    alarms: list[Alarm] = field(default_factory=list)
    stopped: str | None = None
    updates: list[Table] = field(default_factory=list)


@dataclass(frozen=True)
class PilotRun(Run[Any]):
    """A run that updates no policy; it notes alarms and continues."""

    notes: Notes = field(default_factory=Notes)

    def iterations(self, first: int = 1) -> Iterator[tuple[int, Place]]:
        """The first iteration only; no report is written."""
        yield first, self.place.iteration(first)

    def watch(
        self, at: Place, measure: Measure, *, policy: str, benchmark: str, **measured: Any
    ) -> dict[str, float]:
        """Watch as a normal run does, but note an alarm instead of raising it, and return no means
        then."""
        try:
            return super().watch(at, measure, policy=policy, benchmark=benchmark, **measured)
        except Alarm as alarm:
            self.notes.alarms.append(alarm)
            return {}

    def _update(
        self,
        at: Place,
        player: Player,
        rows: Table,
        settings: GRPOSettings,
        reference: Policy | None = None,
        reference_logprobs: Table | None = None,
    ) -> Player:
        """Note the batch, and return the player unchanged."""
        self.notes.updates.append(rows)
        return player


def play_pilot(
    method: Method, request: Request, force: bool = False, pool: MachinePool | None = None
) -> Notes:
    """Play the first step of every phase of a run, without updates or held-out scores.

    The tables are those of the run itself, which continues from them. Tables after the first update
    come from a policy that the update would have changed, so the run makes them again. `pool`:
    machines that it shares with other runs. Raises ValueError as `Method.run` does, for a flow that
    trains nothing, and for a run that has been trained.
    """
    cfg = method.load(request)
    if not isinstance(cfg, MethodSettings):
        raise ValueError(f"{request.flow} trains no model: there is nothing to pilot")
    check_untrained(open_store(), request.run)
    first_step = profiles.load(
        method.config, request.profile, {**request.settings, **of_first_step(cfg)}
    )
    with (
        open_run(request, cfg, force=force) as store,
        opened(first_step, store, request.run, kind=PilotRun, pool=pool) as run,
    ):
        assert isinstance(run, PilotRun)
        try:
            method.play(run)
        except (Alarm, UnreadError) as stop:
            run.notes.stopped = str(stop)
        return run.notes


def check_untrained(store: Store, run: str) -> None:
    """Raise ValueError for a run with updates: tables sampled without updates would replace those
    that it was trained on."""
    if any(store.tables(run, UPDATES)):
        raise ValueError(
            f"run {run!r} has been trained, and its tables would be replaced by those of a policy"
            " that is not: name another run with --run (`selfplay findings` says what happened in"
            " this one)"
        )


def of_first_step(cfg: MethodSettings) -> dict[str, Any]:
    """Settings that override a run's: one step in each phase, and no held-out score.

    For SCOPE the steps are `challenger.steps` and `solver.steps`.
    """
    names = [name for name in _counts(cfg) if name != "iterations"]
    changes = {**dict.fromkeys(names, 1), **NO_HELD_OUT_SCORE}
    if hasattr(cfg.evaluation, "also"):
        changes["evaluation.also"] = []
    return changes


def num_steps(cfg: MethodSettings) -> int:
    """How often a run repeats what a pilot plays once: the number of iterations times the mean
    number of steps in a phase."""
    counts = {name: int(value) for name, value in _counts(cfg).items()}
    iterations = counts.pop("iterations", 1)
    steps = list(counts.values()) or [1]
    return iterations * round(sum(steps) / len(steps))


def _counts(cfg: BaseModel, path: tuple[str, ...] = ()) -> Mapping[str, int]:
    """The settings in `COUNTS`, at any depth, that are at least 1, by dotted name."""
    counts: dict[str, int] = {}
    for name in type(cfg).model_fields:
        value = getattr(cfg, name)
        if isinstance(value, BaseModel):
            counts |= _counts(value, (*path, name))
        elif name in COUNTS and isinstance(value, int) and value >= 1:
            counts[".".join((*path, name))] = value
    return counts
