"""The machines of a run: its engines, its trainer, and the models that they start with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from flows.runtime.store_root import store_root
from flows.settings.profile import MethodSettings
from tasks.engines.chat import ChatFleet
from tasks.engines.endpoint import API
from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy, check_policies, is_alike
from tasks.stage import Rows, stage
from tasks.update import Trainer
from warehouse.clean import free_superseded
from warehouse.draft import hash_bytes
from warehouse.hashes import remembered_hash
from warehouse.schemas import POLICIES
from warehouse.store import Store, Table

HASHES = "model-hashes.json"  # beside the store's tables
# the settings that decide which machines a run needs
SETTINGS_OF_MACHINES = {
    "engine",
    "num_engines",
    "judge_engine",
    "trainer_processes",
    "trainer_place",
    "resident_trainer",
    "keep_checkpoints",
}


@dataclass(frozen=True)
class Machines:
    """The players' engines, the judges' engines (the players' if judges have no separate ones), an
    API client, and the trainer.

    Each starts on first use. A judge whose model fits neither kind of engine gets one in `others`,
    keyed by its weights, with the judges' settings and on their GPUs. Only one of the judges'
    engines is loaded at a time.
    """

    engines: Fleet
    judges: Fleet
    trainer: Trainer
    keep_checkpoints: Literal["all", "last"] = "all"
    api: ChatFleet | None = None
    others: dict[str, Fleet] = field(default_factory=dict)

    @classmethod
    def of(cls, cfg: MethodSettings, logs: Path, api: ChatFleet | None = None) -> Machines:
        """The machines that a configuration asks for; they log to the folder `logs`."""
        engines = Fleet(cfg.engine, cfg.num_engines, logs)
        # on the cluster's GPUs, the trainer takes turns with the engines
        on_nodes = cfg.trainer_place == "ray" and cfg.engine.place == "ray"
        trainer = Trainer(
            logs / "trainer.log",
            num_processes=cfg.trainer_processes,
            device=cfg.engine.device,
            threads=cfg.engine.threads,
            resident=cfg.resident_trainer,
            place=cfg.trainer_place,
            seats=engines.seats if on_nodes else None,
        )
        return cls(engines, _judges(cfg, logs) or engines, trainer, cfg.keep_checkpoints, api)

    def serving(self, policy: Policy, on_judge_engine: bool) -> Fleet | ChatFleet:
        """The fleet that samples from a policy: the API's if the policy is behind one; else the
        judges' if `on_judge_engine`, otherwise the players'."""
        if policy.weights.startswith(API):
            assert self.api is not None, "the configuration was checked"
            return self.api
        if on_judge_engine:
            return self._judging(policy)
        return self.engines

    def serving_player(self, start: Policy) -> Fleet:
        """The engines that sample from a player, given the model that it started from.

        They are the judges' engines if the players' cannot load that model, such as a reward model
        with a different architecture.
        """
        if is_alike(self.engines.config.model, start.weights):
            return self.engines
        return self._judging(start)

    def _judging(self, policy: Policy) -> Fleet:
        """The fleet for a model that is not a player's. The other judges' engines are closed."""
        if self.judges is self.engines:
            return self.engines
        serving = self.judges
        config = self.judges.config
        if config.kind == "vllm" and not is_alike(config.model, policy.weights):
            if is_alike(self.engines.config.model, policy.weights):
                # M0 as a judge beside a different judge: this avoids reloading at every turn
                return self.engines
            own = config.model_copy(update={"model": policy.weights})
            new = Fleet(own, 1, self.judges.log_dir, self.judges.first)
            serving = self.others.setdefault(policy.weights, new)
        for fleet in (self.judges, *self.others.values()):
            if fleet not in (serving, self.engines):
                fleet.close()
        return serving

    @property
    def _fleets(self) -> tuple[Fleet, ...]:
        """Every fleet once."""
        if self.judges is self.engines:
            return (self.engines, *self.others.values())
        return (self.engines, self.judges, *self.others.values())

    def close(self) -> None:
        """End all processes."""
        for process in (*self._fleets, self.trainer, self.api):
            if process is not None:
                process.close()

    def release_engines(self) -> None:
        """Give an update the memory that engines hold; they take it back when next used."""
        for fleet in self._fleets:
            if fleet.config.device == "cuda":
                fleet.sleep()

    def free_superseded(self, store: Store, updated: Table) -> None:
        """If a run keeps only its last checkpoint, free those that an update superseded once its
        own is written."""
        if self.keep_checkpoints == "last":
            store.behind.then(partial(free_superseded, store, updated))


class MachinePool:
    """Machines shared by runs that are played one after another, as in a study.

    A small run samples for only seconds, and its engines take as long to start. Runs that ask for
    the same machines share them; a run that asks for different ones ends the old ones first.
    """

    def __init__(self) -> None:
        self._asked = ""
        self._machines: Machines | None = None

    def of(self, cfg: MethodSettings, logs: Path, api: ChatFleet | None = None) -> Machines:
        """The machines that a configuration asks for: new ones unless the previous run's fit. They
        log to the folder `logs` of the run that started them."""
        asked = cfg.model_dump_json(include=SETTINGS_OF_MACHINES)
        if self._machines is None or asked != self._asked:
            self.close()
            self._machines = Machines.of(cfg, logs)
            self._asked = asked
        return replace(self._machines, api=api)

    def close(self) -> None:
        """End all processes."""
        if self._machines is not None:
            self._machines.close()
            self._machines = None


def _judges(cfg: MethodSettings, logs: Path) -> Fleet | None:
    """The judges' own engine, on the GPUs after those of the players; None if they have none."""
    if cfg.judge_engine is None:
        return None
    num_gpus_before = cfg.num_engines * cfg.engine.tensor_parallel
    # GPUs are counted in blocks of the judges' own size: with 3 GPUs before and blocks of 2, the
    # judges' engine is block 2, on GPUs 4 and 5
    first = math.ceil(num_gpus_before / cfg.judge_engine.tensor_parallel)
    return Fleet(cfg.judge_engine, 1, logs, first=first)


def open_models(cfg: MethodSettings) -> dict[str, Policy]:
    """The models of a configuration by the name of their setting, without the one that players
    start from.

    Raises ValueError for a missing model, for a base that the engine cannot load, and, without
    `judge_engine`, for any other model that it cannot load.
    """
    models = dict[str, Policy]()
    for name, path in cfg.models.model_dump(exclude={"start"}).items():
        if not path:
            continue
        if cfg.api and path.startswith(API):
            models[name] = cfg.api.policy(path)
            continue
        models[name] = open_model(path)
    for name, policy in models.items():
        if policy.weights.startswith(API):
            continue
        try:
            check_policies(cfg.engine, [policy])
        except ValueError:
            if cfg.judge_engine is None or name == "base":
                raise
            check_policies(cfg.judge_engine.model_copy(update={"model": policy.weights}), [policy])
    return models


def told_apart(models: Mapping[str, Policy]) -> dict[str, Policy]:
    """The models, with different ids for different models.

    A model in a folder is named after it, and two folders may share a name, such as
    `checkpoint-500`. In that case the beginning of its hash is appended to the later one's id.
    """
    hashes = dict[str, str]()
    apart = dict[str, Policy]()
    for name, policy in models.items():
        if hashes.setdefault(policy.id, policy.content_hash) != policy.content_hash:
            policy = policy.model_copy(update={"id": f"{policy.id}-{policy.content_hash[:6]}"})
        apart[name] = policy
    return apart


def open_model(model: str) -> Policy:
    """A model made elsewhere, identified by its weights or by its hub name.

    A hub name means the main branch as cached on this machine; to pin a revision, name the folder
    of that snapshot.
    """
    folder = Path(model)
    if not folder.is_dir():
        return Policy(id=model, weights=model, content_hash=hash_bytes(model.encode()))
    return Policy(
        id=folder.name,
        weights=str(folder),
        content_hash=remembered_hash(folder, store_root() / HASHES),
    )


@stage(POLICIES)
def register(*, policies: dict[str, Policy]) -> Rows:
    """Yield the policies that a run starts from, one row each.

    `policies` are keyed by name, such as "base" and "grader"; a policy with several names has one
    row, with a role such as `base+grader`.
    """
    by_id = {policy.id: policy for policy in policies.values()}
    for policy_id, policy in by_id.items():
        roles = [role for role, other in policies.items() if other.id == policy_id]
        yield {
            "policy": policy_id,
            "role": "+".join(roles),
            "policy_hash": policy.content_hash,
            "weights": policy.weights,
        }
