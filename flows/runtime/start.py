"""The policies from which the players of a run may start instead of its base model, such as another
run's."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from flows.runtime.machines import open_model
from flows.settings.profile import MethodSettings
from tasks.models.engine import Policy, check_policies, is_alike
from tasks.training.grpo import GRPOSettings
from tasks.update import updated_policy
from warehouse.address import RUN_NAME
from warehouse.clean import check_kept
from warehouse.draft import hash_folder, hash_json
from warehouse.schemas import POLICIES
from warehouse.store import Store

log = logging.getLogger("selfplay")
ADAPTER = "adapter_config.json"
DEMO = "spell-smollm2"  # the run of `make demo-english`, from which the profile `documents` starts


def open_start(name: str, base: Policy, cfg: MethodSettings, store: Store) -> Policy:
    """The policy that `models.start` names.

    `name` is a run (which means its evaluated player's last policy), RUN/PLAYER for a run that
    trains several players, or the folder of a LoRA adapter on `base`. Raises ValueError if there is
    no such policy, if it was trained from another base, if its files were cleaned up, or if the
    run's updates could not continue it.
    """
    if (Path(name) / ADAPTER).is_file():
        policy = open_adapter(Path(name), base)
    else:
        policy = _of_run("models.start", name, base, cfg, store)
    check_policies(cfg.engine, [policy])
    if policy.adapter is not None:
        _check_adapters(Path(policy.adapter), cfg)
    return policy


def open_teacher(name: str, base: Policy, cfg: MethodSettings, store: Store) -> Policy:
    """The policy that `teacher` names.

    `name` is a run, RUN/PLAYER or an adapter's folder, as in `open_start`, or else the folder or
    hub name of a model. Raises ValueError as `open_start` does, and for a model that no engine can
    load.
    """
    run = name.partition("/")[0]
    if (Path(name) / ADAPTER).is_file():
        policy = open_adapter(Path(name), base)
    elif RUN_NAME.fullmatch(run) and store.folder(run).exists():
        policy = _of_run("teacher", name, base, cfg, store)
    else:
        policy = open_model(name)
    engine = cfg.engine
    if cfg.judge_engine is not None and not is_alike(engine.model, policy.weights):
        engine = cfg.judge_engine.model_copy(update={"model": policy.weights})
    check_policies(engine, [policy])
    return policy


def open_adapter(folder: Path, base: Policy) -> Policy:
    """The policy of a PEFT LoRA adapter in `folder` on the model `base`. Its id is the folder's
    name; its hash covers the base model's hash and the files in the folder."""
    content_hash = hash_json([base.content_hash, hash_folder(folder)])
    return Policy(
        id=folder.name, weights=base.weights, adapter=str(folder), content_hash=content_hash
    )


def _of_run(setting: str, name: str, base: Policy, cfg: MethodSettings, store: Store) -> Policy:
    """The last policy of a run's player, named `name` by the setting `setting`."""
    run, _, player = name.partition("/")
    if not RUN_NAME.fullmatch(run) or not store.folder(run).exists():
        way_out = "`selfplay status` lists the runs"
        if run == DEMO:
            way_out = "`make demo-english` makes this run"
        raise ValueError(
            f"{setting} is {name!r}, which is neither a run nor the folder of a LoRA adapter"
            f" (with {ADAPTER}); {way_out}"
        )
    last = {table.rows()[-1]["role"]: table for table in store.updates(run)}
    if not last:
        raise ValueError(f"{setting} is {name!r}, but that run has updated no policy yet")
    if not player:
        player = cfg.examined if cfg.examined in last else next(iter(last))
        if player != cfg.examined and len(last) > 1:
            raise ValueError(
                f"{setting} is {name!r}, a run that trains {', '.join(sorted(last))}: name one,"
                f' as in {setting} = "{run}/{player}"'
            )
    if player not in last:
        raise ValueError(
            f"{setting} is {name!r}, but the run {run} trains no {player}: it trains"
            f" {', '.join(sorted(last))}"
        )
    policy, _ = updated_policy(last[player])
    check_kept(store.root, policy.adapter or policy.weights, again="updates")
    if policy.adapter is None:
        return policy
    begun_with = base_hash(store, run)
    if begun_with not in (None, base.content_hash):
        raise ValueError(
            f"{setting} is {name!r}, an adapter on another model than models.base,"
            f" {base.weights}: give the base that the run {run} began with"
        )
    return policy.model_copy(update={"weights": base.weights})


def base_hash(store: Store, run: str) -> str | None:
    """The content hash of the base model that a run began with; None if it is not recorded."""
    for table in store.tables(run, POLICIES):
        for row in table.rows():
            if "base" in row["role"].split("+"):
                return row["policy_hash"]
    return None


def _check_adapters(adapter: Path, cfg: MethodSettings) -> None:
    """Raise ValueError if an update of `cfg` trains full weights, or adapters with another shape or
    on other modules, or if the adapter does not state its shape."""
    config = json.loads((adapter / ADAPTER).read_text(encoding="utf-8"))
    absent = [key for key in ("r", "lora_alpha") if config.get(key) is None]
    if absent:
        raise ValueError(f"{adapter / ADAPTER} has no {' and no '.join(absent)}: add it")
    rank = config["r"]
    alpha = config["lora_alpha"]
    targets = _last_names(config.get("target_modules") or ())
    for key, update in updates_in(cfg):
        if update.lora is None:
            raise ValueError(
                f"models.start is an adapter, and {key} trains full weights: set {key}.lora ="
                f" {{ rank = {rank}, alpha = {alpha} }}"
            )
        if (update.lora.rank, update.lora.alpha) != (rank, alpha):
            raise ValueError(
                f"models.start is an adapter of rank {rank}, alpha {alpha}, and {key}.lora has"
                f" {update.lora.rank}, {update.lora.alpha}: make them agree"
            )
        wanted = _last_names(update.lora.targets)
        if "all-linear" in wanted:
            log.info("updates train what the adapter of models.start has: %s", ", ".join(targets))
        elif wanted != targets:
            raise ValueError(
                f"models.start is an adapter of {', '.join(targets)}, and {key}.lora.targets says"
                f" {', '.join(wanted)}: make them agree"
            )


def _last_names(modules: str | Sequence[str]) -> list[str]:
    """The names of modules without their parents' names, sorted."""
    if isinstance(modules, str):
        return [modules]
    return sorted({name.rpartition(".")[2] for name in modules})


def updates_in(
    settings: BaseModel, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, GRPOSettings]]:
    """Yield the settings of updates, at any depth, with their dotted names."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, GRPOSettings):
            yield ".".join((*path, name)), value
        elif isinstance(value, BaseModel):
            yield from updates_in(value, (*path, name))
