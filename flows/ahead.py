"""Play a step ahead, in slices side by side, so that engines do not wait for each stage's longest conversations.

A stage is whole before the next one begins, and while its last conversations end, engines have little else to do. With
`ahead = 4` a step is first played in slices of 4 of the prompts that it begins with. Each slice has a thread and a
scratch store of its own; all of them share the engines. So one slice grades its answers while another still writes its
tasks. Then the step is played as ever, and takes from the slices, by rollout id, whatever it asks for; it samples the
rest. So its tables, their order, their recipes and their recovery do not depend on slices. A slice that fails, or that
asks for something the step does not, costs time and nothing else.

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
    """A slice cannot go on beside the others."""


def ahead(play: Callable[P, R]) -> Callable[P, R]:
    """Let a function that plays a step, or a part of one, play slices of it ahead if the configuration says so.

    Its first argument is the run, or has it; another one is the place where it writes. What it asks later on must
    follow from the replies to single prompts of those that it asks first.
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
    """A step that is being played, and how; its tables of rollouts so far, and those of its slices, by address."""

    play: Callable[[Place], Any]
    size: int  # prompts in a slice
    folder: Path  # of the slices' stores
    find: Callable[[str], Table | None]  # a table of its store
    num_prompts: int = 0  # that it begins with
    own: dict[str, list[Table]] = field(default_factory=dict)
    sampled: dict[str, list[Table]] = field(default_factory=dict)
    seconds: float | None = None  # that its slices took, once they are played
    is_stopped: bool = False
    _workers: dict[Compare, Workers] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def workers(self, compare: Compare, time_limit_s: float, num_workers: int) -> Workers:
        """Processes that compare for all slices, until these are played."""
        with self._lock:
            if compare not in self._workers:
                self._workers[compare] = Workers(compare, time_limit_s, num_workers)
            return self._workers[compare]

    def play_slices(self, at: Place) -> None:
        """Play all slices, side by side."""
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
        finally:  # interrupted: slices that are left ask for nothing more, and closing the engines ends their calls
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
        except Exception as problem:  # the step will meet it as well, or it is the slice's alone
            log.debug("%s: slice %d ends: %r", at.path, number, problem, exc_info=True)

    def _take(self, table: Table) -> None:
        if table.schema is ROLLOUTS:
            self.sampled.setdefault(table.address, []).append(table)

    def seconds_for(self, address: str) -> float:
        """The share of one table in the slices' seconds, by tokens sampled."""
        tokens = {name: sum(table.recipe["tokens"] or 0 for table in tables) for name, tables in self.sampled.items()}
        return (self.seconds or 0.0) * tokens.get(address, 0) / max(1, sum(tokens.values()))


class SliceStore(Store):
    """Where a slice writes. What the step has made of the same inputs, such as its first prompts, is not made again."""

    def __init__(self, root: Path, find_in_step: Callable[[str], Table | None]) -> None:
        super().__init__(root, quiet=True)
        self._find_in_step = find_in_step

    def find(self, address: str) -> Table | None:
        return super().find(address) or self._find_in_step(address)


@dataclass(frozen=True)
class Ahead(Place):
    """Where a step writes that takes what its slices have sampled."""

    whole: Step

    def begin(self, prompts: Table, machines: Machines, policy: Policy, judge: bool, label: str) -> Begun:
        """Before prompts are rolled out."""
        self.whole.num_prompts = self.whole.num_prompts or prompts.num_rows
        return prompts, Drawing(machines.serving(policy, judge), self, self.address(ROLLOUTS.name, label))

    def end(self, rollouts: Table) -> None:
        """After that."""
        self.whole.own[rollouts.address] = [rollouts]

    def sampled(self, address: str) -> list[Table]:
        """Tables with rollouts for the one at `address`. The first call plays the slices."""
        if self.whole.seconds is None:
            self.whole.play_slices(self)
        return self.whole.sampled.get(address, [])


@dataclass(frozen=True)
class Slice(Ahead):
    """Where a slice writes: at the addresses of the step, in a store of its own."""

    rows: tuple[int, int]  # of the prompts that the step begins with: the slice's first, and the next slice's
    weights: dict[int, str] = field(default_factory=dict)  # that each fleet was asked for
    documents: set[str] = field(default_factory=set)  # that its first prompts are about

    def begin(self, prompts: Table, machines: Machines, policy: Policy, judge: bool, label: str) -> Begun:
        """Of the first prompts it keeps its own; later ones follow from these, or are about the same documents.

        Raises OutOfReach for a model that engines would load in place of one that other slices sample from, and for one
        behind an API, whose costs are counted call by call.
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
        """What the step has already: where it is resumed, slices begin there."""
        return self.whole.own.get(address, [])


@stage(PROMPTS)
def part(prompts: Table, *, rows: Sequence[int], documents: Sequence[str]) -> Rows:
    """Yield the prompts from the first of two positions on, up to the second; if `documents` are given, those about
    them or about none."""
    first, end = rows
    for row in prompts.arrow.slice(first, end - first).to_pylist(maps_as_pydicts="strict"):
        if not documents or row["document_id"] in (None, *documents):
            yield row


class Drawing:
    """A fleet that samples only what is not there yet."""

    def __init__(self, fleet: Fleet | ChatFleet, at: Ahead, address: str) -> None:
        self._fleet, self._at, self._address = fleet, at, address
        self._waited_s = 0.0  # for slices

    @property
    def num_gpus(self) -> int:
        return getattr(self._fleet, "num_gpus", 0)

    @property
    def ahead_s(self) -> float:
        """Seconds that were spent on this stage ahead, less those spent in it on others."""
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
        """As a fleet does; what is there already comes first."""
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
