"""What a run is: its flow, model, corpus and seed, and the settings that were changed."""

from __future__ import annotations

from typing import Any

from warehouse.provenance import by_reason, stale
from warehouse.schemas import Row
from warehouse.store import Store

REQUEST = "request.json"
CONFIG = "config.json"
BASE = "base"
NO_VALUE = ("", None)


def about(store: Store, run: str) -> Row:
    """`facts`, as (name, value); `changed`, other settings given with the last command; `stale`,
    why tables no longer fit the rows they were made from, which may have had other settings.

    What the run's files do not say is left out.
    """
    request = store.kept(run, REQUEST) or {}
    config = store.kept(run, CONFIG) or {}
    models = config.get("models") or {}
    engine = config.get("engine") or {}
    others = {name: models[name] for name in models if name != BASE and _is_other(name, models)}
    facts = {
        "flow": request.get("flow"),
        "profile": request.get("profile"),
        "model": models.get(BASE) or engine.get("model"),
        **others,
        "corpus": request.get("corpus") or config.get("corpus") or _world(config),
        "seed": config.get("seed"),
        "iterations": config.get("iterations"),
    }
    known = {name: value for name, value in facts.items() if value not in NO_VALUE}
    said = {*known, *(f"models.{name}" for name in (BASE, *others))}
    given = request.get("overrides") or {}
    return {
        "facts": list(known.items()),
        "changed": {setting: value for setting, value in given.items() if setting not in said},
        "stale": by_reason(stale(store, list(store.tables(run)), {})),
    }


def _is_other(name: str, models: dict[str, Any]) -> bool:
    """Whether a role's model is named and differs from the base model."""
    return models[name] not in (*NO_VALUE, models.get(BASE))


def _world(config: dict[str, Any]) -> str | None:
    """The built-in world that documents come from, if the run lives in one."""
    world = config.get("world")
    if world is None:
        return None
    return f"built-in world {world}"
