"""What every flow needs of a run: its place in the store, its saved configuration, engines, trainer and first
policies."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import duckdb
from pydantic import BaseModel

from flows.request import Redo, Request
from flows.service.site import open_store
from tasks.engines.base import EngineConfig, Policy, check_policies
from tasks.engines.fleet import Fleet
from tasks.stage import Rows, stage
from tasks.update import Trainer
from warehouse.clean import free_superseded
from warehouse.draft import hash_bytes, hash_folder
from warehouse.query import write_views
from warehouse.rerun import Enough, Inquiry, Rerun, chosen
from warehouse.schemas import POLICIES
from warehouse.store import Place, Store, Table

CONFIG, REQUEST = "config.json", "request.json"
log = logging.getLogger("selfplay")


class Saveable(Protocol):
    def model_dump(self, *, mode: Literal["json"]) -> dict[str, Any]: ...


class RunConfig(Saveable, Protocol):
    """What a method's configuration says of machines and models."""

    @property
    def models(self) -> BaseModel: ...  # its fields are model folders or hub names, or None

    @property
    def engine(self) -> EngineConfig: ...

    @property
    def judge_engine(self) -> EngineConfig | None: ...

    @property
    def num_engines(self) -> int: ...

    @property
    def trainer_processes(self) -> int: ...

    @property
    def keep_checkpoints(self) -> Literal["all", "last"]: ...


@dataclass(frozen=True)
class Workbench:
    """A run being worked on: where it writes, what samples, what trains, and the policies it starts from."""

    place: Place
    fleet: Fleet
    judge_fleet: Fleet
    trainer: Trainer
    policies: dict[str, Policy]
    keep_checkpoints: Literal["all", "last"] = "all"

    def close(self) -> None:
        for process in {id(p): p for p in (self.fleet, self.judge_fleet, self.trainer)}.values():
            process.close()

    def release_engines(self) -> None:
        """Give an update the memory that engines hold; they take it back when next used."""
        for fleet in {id(f): f for f in (self.fleet, self.judge_fleet)}.values():
            if fleet.config.device == "cuda":
                fleet.sleep()

    def free_superseded(self, updated: Table) -> None:
        """What an update leaves no use for goes, where only last checkpoints are kept."""
        if self.keep_checkpoints == "last":
            free_superseded(self.place.store, updated)


@contextlib.contextmanager
def open_run(asked: Request, cfg: RunConfig, redo: Redo | None = None, force: bool = False) -> Iterator[Workbench]:
    """Open a run for self-play; close its engines and trainer afterwards.

    Raises ValueError, before any model is loaded, for a missing model, one whose tokenizer differs from the engine's,
    and what `open_place` refuses.
    """
    store = _open_to_work(asked.run, redo)
    bench = set_up(asked.run, cfg, store)
    try:
        with _begun(store, asked, cfg, force):
            register(bench.place, policies=bench.policies)
            yield bench
    finally:
        bench.close()


@contextlib.contextmanager
def open_place(asked: Request, cfg: Saveable, redo: Redo | None = None, force: bool = False) -> Iterator[Place]:
    """Open a run that needs no models.

    Raises ValueError for stages to redo that there are none of, or a run that was made with another configuration
    (unless `force`).
    """
    store = _open_to_work(asked.run, redo)
    with _begun(store, asked, cfg, force):
        yield store.run(asked.run)


def _open_to_work(run: str, redo: Redo | None) -> Store:
    log.setLevel(logging.INFO)
    store = open_store()
    if redo is not None:
        store.freshness = make_rerun(store, run, redo)
    return store


@contextlib.contextmanager
def _begun(store: Store, asked: Request, cfg: Saveable, force: bool) -> Iterator[None]:
    save_request(store, asked, cfg, force)
    store.sweep()
    with contextlib.suppress(duckdb.Error):  # a damaged table of some run is no reason not to work
        write_views(store)
    try:
        yield
    except Enough as enough:
        log.info("%s", enough)


def inquire(asked: Request, cfg: RunConfig, play: Callable[[Any, Workbench], Any]) -> list[tuple[str, str | None]]:
    """What a run of the flow would do now: every stage it comes to, and why it would work or None.

    Takes what is published for what a stage would make, and ends at the first table that does not exist or where the
    flow stops of itself.
    """
    inquiry = Inquiry()
    bench = set_up(asked.run, cfg, open_store(inquiry))
    try:
        with _stopping():
            register(bench.place, policies=bench.policies)
            play(cfg, bench)
    finally:
        bench.close()
    return inquiry.found


def inquire_place(asked: Request, cfg: Any, play: Callable[[Any, Place], Any]) -> list[tuple[str, str | None]]:
    """The same of a flow that needs no models."""
    inquiry = Inquiry()
    with _stopping():
        play(cfg, open_store(inquiry).run(asked.run))
    return inquiry.found


@contextlib.contextmanager
def _stopping() -> Iterator[None]:
    try:
        yield
    except RuntimeError as stop:  # a table that does not exist, or what stopped the run: an alarm, a short pool
        log.info("the flow stops there: %s", stop)


def set_up(name: str, cfg: RunConfig, store: Store) -> Workbench:
    """The workbench of a run; engines and trainer start when first used."""
    models = {role: path for role, path in cfg.models.model_dump().items() if path}
    policies = {role: base_policy(path) for role, path in models.items()}
    _check_models(cfg, policies)
    logs = store.root / "logs" / name
    logs.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(cfg.engine, cfg.num_engines, logs)
    judges = judge_fleet(cfg, logs) or fleet
    trainer = Trainer(logs / "trainer.log", cfg.trainer_processes, cfg.engine.device, cfg.engine.threads)
    return Workbench(store.run(name), fleet, judges, trainer, policies, cfg.keep_checkpoints)


def judge_fleet(cfg: RunConfig, logs: Path) -> Fleet | None:
    """The judges' own engine, behind those of the policies: on the next GPUs."""
    if cfg.judge_engine is None:
        return None
    num_before = cfg.num_engines * cfg.engine.tensor_parallel
    return Fleet(cfg.judge_engine, 1, logs, first=-(-num_before // cfg.judge_engine.tensor_parallel))


def _check_models(cfg: RunConfig, policies: dict[str, Policy]) -> None:
    """Every model must fit the engine, or that of the judges where there is one."""
    for policy in policies.values():
        try:
            check_policies(cfg.engine, [policy])
        except ValueError:
            if cfg.judge_engine is None:
                raise
            check_policies(cfg.judge_engine, [policy])


def make_rerun(store: Store, run: str, redo: Redo) -> Rerun:
    """The rule of this flow run; its retries have the same id, and go on with what is left of it."""
    context = sys.modules.get("prefect.context")
    flow_run = context.FlowRunContext.get() if context else None
    rerun_id = str(flow_run.flow_run.id) if flow_run and flow_run.flow_run else uuid.uuid4().hex
    addresses = chosen(store, run, redo.stage, redo.iteration, redo.step)
    return Rerun(rerun_id, addresses, redo.dependents, redo.only)


def base_policy(model: str) -> Policy:
    """A model from outside: identified by its weights, or by its hub name. A hub name is whatever its main branch is
    on this machine; to pin a revision, name the folder of that snapshot."""
    folder = Path(model)
    if not folder.is_dir():
        return Policy(id=model, weights=model, content_hash=hash_bytes(model.encode()))
    return Policy(id=folder.name, weights=str(folder), content_hash=hash_folder(folder))


@stage(POLICIES)
def register(*, policies: dict[str, Policy]) -> Rows:
    """Yield the policies a run starts from."""
    for policy_id, policy in {p.id: p for p in policies.values()}.items():
        roles = "+".join(role for role, p in policies.items() if p.id == policy_id)
        yield {"policy": policy_id, "role": roles, "policy_hash": policy.content_hash, "weights": policy.weights}


def save_request(store: Store, asked: Request, config: Saveable, force: bool = False) -> None:
    """Write the request and the resolved configuration beside the run; raises ValueError as `check_request` does.

    With `force` the old configuration is kept beside the new, and stages that depend on a changed setting are made
    again.
    """
    before, now = store.kept(asked.run, CONFIG), config.model_dump(mode="json")
    check_request(store, asked, config, force)
    if before and before != now:
        store.keep(asked.run, f"config-until-{time.strftime('%Y%m%d-%H%M%S')}.json", before)
    store.keep(asked.run, CONFIG, now)
    store.keep(asked.run, REQUEST, asked.model_dump(mode="json"))


def check_request(store: Store, asked: Request, config: Saveable, force: bool = False) -> None:
    """Raise ValueError if the run is another flow's, or was made with another configuration, unless `force`."""
    before, now = store.kept(asked.run, CONFIG), config.model_dump(mode="json")
    last = store.kept(asked.run, REQUEST)
    if last and last["flow"] != asked.flow:
        raise ValueError(f"run {asked.run!r} is one of {last['flow']}; give this run of {asked.flow} another name")
    if before and not force and (changed := differences(before, now)):
        raise ValueError(
            f"run {asked.run!r} was made with {'; '.join(changed[:5])}. Give this run a new name, undo the change, "
            "or go on with it by --force: what depends on it is made again."
        )


def last_request(store: Store, run: str) -> Request:
    """What a run was last asked for. Raises ValueError if there is no such run."""
    asked = store.kept(run, REQUEST)
    if asked is None:
        raise ValueError(f"there is no run {run!r}; `selfplay status` lists the runs")
    return Request.model_validate(asked)


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """`key before, now value` for every setting that differs.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b 1, now 2']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        return [d for key in keys for d in differences(before.get(key), now.get(key), f"{where}.{key}".lstrip("."))]
    return [] if before == now else [f"{where} {before}, now {now}"]
