"""Play a step ahead, in slices side by side, so that engines do not wait for each stage's longest conversations.

A stage is complete before the next one begins, and while its last conversations end, engines have little else to do.
With `ahead = 4` the first prompts of a step are split into slices of 4, and each slice plays the whole step for its
prompts. Each slice has a thread and a scratch store of its own; all share the engines. So one slice grades its answers
while another still writes its tasks. Then the step itself is played stage by stage. It takes the rollouts that slices
have sampled, by rollout id, and samples the rest. So its tables, their order, their recipes and their recovery do not
depend on slices. A slice that fails, or samples what the step does not need, only costs time.

Such a run identifies prompts by what they are about instead of by their position, which a slice cannot know: other
seeds, and so other rollouts, of the same distribution.
"""

from __future__ import annotations

import functools
import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from flows.machines import Machines
from tasks.engines.base import Policy
from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.processes.comparisons import Compare, Workers
from tasks.rollouts.conversation import digest
from tasks.stage import Rows, stage
from warehouse.schemas import PROMPTS, ROLLOUTS, PromptRow, Rollout
from warehouse.store import Place, Store, Table

P = ParamSpec("P")
R = TypeVar("R")
Begun = tuple[Table, Any]  # the prompts to roll out, and the fleet for it
MOST_THREADS = 256
PROGRESS_S = 30.0
log = logging.getLogger("selfplay")


class OutOfReach(RuntimeError):
    """A slice ends early: it needs a model that slices cannot share, or the step was interrupted."""


def ahead(play: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function that plays a step, or a part of one: with `ahead` > 0 it first plays slices of the step.

    The function's first argument is the run or has an attribute `run`; another argument is the place where it writes.
    Each of its later prompts must follow from replies to single prompts of its first table of prompts.
    """

    @functools.wraps(play)
    def played(*args: P.args, **kwargs: P.kwargs) -> R:
        run: Any = getattr(args[0], "run", args[0])
        at = next(value for value in args if isinstance(value, Place))
        if not run.cfg.ahead or isinstance(at, Ahead):
            return play(*args, **kwargs)

        def play_at(place: Place) -> R:
            return play(*(place if value is at else value for value in args), **kwargs)  # type: ignore[arg-type]

        folder = at.store.unfinished(f"{at.path}/{play.__name__}")
        step = Step(play_at, run.cfg.ahead, folder, functools.cache(at.store.find))
        result = play_at(Ahead(at.store, at.at, step))
        shutil.rmtree(step.folder, ignore_errors=True)
        return result

    return played


@dataclass
class Step:
    """A step that is being played: how, and its own and its slices' tables of rollouts so far, by address."""

    play: Callable[[Place], Any]
    size: int  # prompts in a slice
    folder: Path  # with the slices' stores
    find: Callable[[str], Table | None]  # looks up a table in the step's store
    num_prompts: int = 0  # in its first table of prompts
    own: dict[str, list[Table]] = field(default_factory=dict)
    sampled: dict[str, list[Table]] = field(default_factory=dict)
    seconds: float | None = None  # that the slices took; None before they are played
    is_stopped: bool = False
    _workers: dict[Compare, Workers] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def workers(self, compare: Compare, time_limit_s: float, num_workers: int) -> Workers:
        """The processes that compare answers for all slices. They end with the slices."""
        with self._lock:
            if compare not in self._workers:
                self._workers[compare] = Workers(compare, time_limit_s, num_workers)
            return self._workers[compare]

    def play_slices(self, at: Place) -> None:
        """Play all slices in parallel."""
        began, number = time.monotonic(), math.ceil(self.num_prompts / self.size)
        shown, ended = began, 0
        threads = ThreadPoolExecutor(min(number, MOST_THREADS), "ahead")
        try:
            for future in as_completed([threads.submit(self._play_slice, at, n) for n in range(number)]):
                future.result()
                ended += 1
                if time.monotonic() - shown > PROGRESS_S:
                    shown = time.monotonic()
                    log.info("%s: %d of %d slices were played ahead", at.path, ended, number)
        finally:  # if interrupted: remaining slices send no more prompts, and closing the engines ends their calls
            self.is_stopped = True
            threads.shutdown(wait=False, cancel_futures=True)
            for workers in self._workers.values():
                workers.end()
        self.seconds = time.monotonic() - began
        log.info("%s: %d slices were played ahead in %.1f s", at.path, number, self.seconds)

    def _play_slice(self, at: Place, number: int) -> None:
        store = SliceStore(self.folder / str(number), self.find)
        store.watchers.append(self._take)
        rows = number * self.size, (number + 1) * self.size
        try:
            self.play(Slice(store, at.at, self, rows))
        except Exception as problem:  # the step will meet the same problem, or it concerns only this slice
            log.debug("%s: slice %d ends: %r", at.path, number, problem, exc_info=True)

    def _take(self, table: Table) -> None:
        if table.schema is ROLLOUTS:
            self.sampled.setdefault(table.address, []).append(table)

    def seconds_for(self, address: str) -> float:
        """The share of one table of rollouts in the slices' seconds, in proportion to tokens sampled."""
        tokens = {name: sum(table.recipe["tokens"] or 0 for table in tables) for name, tables in self.sampled.items()}
        return (self.seconds or 0.0) * tokens.get(address, 0) / max(1, sum(tokens.values()))


class SliceStore(Store):
    """A slice's store. It also finds the step's tables, so that a slice does not build them again."""

    def __init__(self, root: Path, find_in_step: Callable[[str], Table | None]) -> None:
        super().__init__(root, quiet=True)
        self._find_in_step = find_in_step

    def find(self, address: str) -> Table | None:
        return super().find(address) or self._find_in_step(address)


@dataclass(frozen=True)
class Ahead(Place):
    """Where a step writes if it takes rollouts that its slices have sampled."""

    whole: Step

    def begin(self, prompts: Table, machines: Machines, policy: Policy, judge: bool, label: str) -> Begun:
        """Return the prompts to roll out and the fleet for them; called before every table of rollouts."""
        self.whole.num_prompts = self.whole.num_prompts or prompts.num_rows
        return prompts, Drawing(machines.serving(policy, judge), self, self.address(ROLLOUTS.name, label))

    def end(self, rollouts: Table) -> None:
        """Note a complete table of rollouts; a slice that is played later takes from it."""
        self.whole.own[rollouts.address] = [rollouts]

    def sampled(self, address: str) -> list[Table]:
        """The slices' tables of rollouts for this address. The first call plays the slices."""
        if self.whole.seconds is None:
            self.whole.play_slices(self)
        return self.whole.sampled.get(address, [])


@dataclass(frozen=True)
class Slice(Ahead):
    """Where a slice writes: at the addresses of the step, in a store of its own."""

    rows: tuple[int, int]  # in the step's first table of prompts: the first row of this slice and of the next one
    weights: dict[int, str] = field(default_factory=dict)  # that each fleet samples from, by the fleet's id()
    documents: set[str] = field(default_factory=set)  # of its first prompts

    def begin(self, prompts: Table, machines: Machines, policy: Policy, judge: bool, label: str) -> Begun:
        """Return the slice's part of the prompts: its rows of the first table, later those about the same documents.

        Raises OutOfReach if engines would have to replace a model that other slices sample from, and for a model behind
        an API, whose costs are counted call by call.
        """
        if self.whole.is_stopped:
            raise OutOfReach("the step was interrupted")
        is_first, takes_turns = not self.weights, machines.takes_turns(policy, judge)
        fleet = None if takes_turns else machines.serving(policy, judge)
        loaded = self.weights.setdefault(id(fleet), policy.weights)
        if not isinstance(fleet, Fleet) or loaded != policy.weights:
            raise OutOfReach(f"{label} needs another model")
        rows = self.rows if is_first else (0, prompts.num_rows)
        own = part(self, prompts, rows=rows, documents=sorted(self.documents), label=f"{label}-slice")
        self.documents.update(filter(None, own.arrow["document_id"].to_pylist()) if is_first else ())
        return own, Drawing(fleet, self, self.address(ROLLOUTS.name, label))

    def end(self, rollouts: Table) -> None: ...

    def sampled(self, address: str) -> list[Table]:
        """The step's own rollouts at this address: slices of a resumed step begin with these."""
        return self.whole.own.get(address, [])


@stage(PROMPTS)
def part(prompts: Table, *, rows: Sequence[int], documents: Sequence[str]) -> Rows:
    """Yield the prompts in a range of `rows` (first, end). If `documents` are given, omit prompts about others."""
    first, end = rows
    for row in prompts.arrow.slice(first, end - first).to_pylist(maps_as_pydicts="strict"):
        if not documents or row["document_id"] in (None, *documents):
            yield row


class Drawing:
    """A fleet that first yields rollouts already sampled, by slices or by the step, and samples only the rest."""

    def __init__(self, fleet: Fleet | ChatFleet, at: Ahead, address: str) -> None:
        self._fleet, self._at, self._address = fleet, at, address
        self._waited_s = 0.0  # for the slices to be played

    @property
    def num_gpus(self) -> int:
        return getattr(self._fleet, "num_gpus", 0)

    @property
    def ahead_s(self) -> float:
        """Seconds to add to the stage's own: slices spent them on it, less those that it waited for slices."""
        return self._at.whole.seconds_for(self._address) - self._waited_s

    def roll_out(
        self,
        prompts: Iterable[PromptRow],
        *,
        policy: Policy,
        num_samples: int,
        seed: int,
        skip: Set[tuple[str, int]],
        **call: Any,
    ) -> Iterator[Rollout]:
        """Yield rollouts as `Fleet.roll_out` does, those already sampled first."""
        asked, done, began = list(prompts), set(skip), time.monotonic()
        wanted = {digest(prompt["prompt_id"], n, seed).hex() for prompt in asked for n in range(num_samples)}
        there = self._at.sampled(self._address)
        self._waited_s += time.monotonic() - began
        for table in there:
            for row in table.rows(Rollout):
                key = row["prompt_id"], row["sample"]
                usable = row["finish_reason"] != "error" and row["policy_hash"] == policy.content_hash
                if usable and row["rollout_id"] in wanted and key not in done:
                    done.add(key)
                    yield row
        if len(done) < len(wanted):
            how = {"policy": policy, "num_samples": num_samples, "seed": seed, "skip": frozenset(done)}
            yield from self._fleet.roll_out(asked, **how, **call)
