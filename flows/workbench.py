"""What every flow needs of a run: its place in the store, its saved configuration, engines, trainer and first
policies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from tasks.engine import EngineConfig, Policy, check_policies
from tasks.fleet import Fleet
from tasks.stage import Rows, stage
from tasks.update import Trainer
from warehouse.query import write_views
from warehouse.schemas import POLICIES
from warehouse.store import Place, Store, hash_bytes, hash_folder

PROJECT = Path(__file__).resolve().parent.parent
STORE = Path(os.environ.get("SELFPLAY_STORE", PROJECT / "data" / "store"))


class RunConfig(Protocol):
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

    def model_dump(self, *, mode: Literal["json"]) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Workbench:
    """A run being worked on: where it writes, what samples, what trains, and the policies it starts from."""

    place: Place
    fleet: Fleet
    judge_fleet: Fleet
    trainer: Trainer
    policies: dict[str, Policy]

    def release_engines(self) -> None:
        """Give an update the memory that engines hold; they take it back when next used."""
        for fleet in {id(f): f for f in (self.fleet, self.judge_fleet)}.values():
            if fleet.config.device == "cuda":
                fleet.sleep()


@contextlib.contextmanager
def open_run(name: str, cfg: RunConfig, root: Path | None = None) -> Iterator[Workbench]:
    """Open a run for work; close its engines and trainer afterwards.

    Raises ValueError, before any model is loaded, for a missing model, one whose tokenizer differs from the engine's,
    or a run that was made with another configuration.
    """
    logging.getLogger("selfplay").setLevel(logging.INFO)
    store = Store(root or STORE)
    models = {role: path for role, path in cfg.models.model_dump().items() if path}
    policies = {role: base_policy(path) for role, path in models.items()}
    check_policies(cfg.engine, policies.values())
    save_config(store, name, cfg)
    write_views(store)
    logs = store.root / "logs" / name
    logs.mkdir(parents=True, exist_ok=True)
    fleet = Fleet(cfg.engine, cfg.num_engines, logs)
    judges = Fleet(cfg.judge_engine, 1, logs) if cfg.judge_engine else fleet
    trainer = Trainer(logs / "trainer.log", cfg.trainer_processes, cfg.engine.device, cfg.engine.threads)
    register(store.run(name), policies=policies)
    try:
        yield Workbench(store.run(name), fleet, judges, trainer, policies)
    finally:
        for process in {id(p): p for p in (fleet, judges, trainer)}.values():
            process.close()


def base_policy(model: str) -> Policy:
    """A model from outside: identified by its weights, or by its hub name (pin a revision there)."""
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


def save_config(store: Store, run: str, config: RunConfig) -> None:
    """Write the resolved configuration beside the run. Raises ValueError if the run was made with another one."""
    path = store.folder(run) / "config.json"
    now = config.model_dump(mode="json")
    if path.exists():
        changed = differences(json.loads(path.read_text()), now)
        if changed:
            raise ValueError(
                f"run {run!r} was made with {'; '.join(changed[:5])}. "
                "Give this run a new name, or undo the change to go on with it."
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(now, indent=1, ensure_ascii=False))


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """`key before, now value` for every setting that differs.

    >>> differences({"a": {"b": 1}}, {"a": {"b": 2}})
    ['a.b 1, now 2']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        keys = sorted(before.keys() | now.keys())
        return [d for key in keys for d in differences(before.get(key), now.get(key), f"{where}.{key}".lstrip("."))]
    return [] if before == now else [f"{where} {before}, now {now}"]
