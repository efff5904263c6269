"""Short work is done in this process: a worker would take longer to start than to finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flows.service.site import open_store

if TYPE_CHECKING:
    from warehouse.rerun import Inquiry

MOMENT_S = 5.0


def why_here(run: str, rerun: dict[str, Any] | None, inquire: Callable[[], Inquiry]) -> str | None:
    """Why a flow run needs no worker: nothing is stale, or all stages to rerun were short and need neither engine nor
    trainer. None if it needs one. `inquire` returns what the flow run would do.
    """
    store = open_store()
    if any(store.working(run)):
        return None
    if rerun is None:
        return _why_finished(dict(inquire().found)) if any(store.tables(run)) else None
    return _why_rerun_here(run, rerun) if rerun.get("only") else None


def _why_finished(stages: dict[str, str | None]) -> str | None:
    return None if any(stages.values()) else f"in this process: all {len(stages)} stages are fresh"


def _why_rerun_here(run: str, rerun: dict[str, Any]) -> str | None:
    from warehouse.rerun import chosen

    store = open_store()
    addresses = chosen(store, run, rerun["stage"], rerun.get("iteration"), rerun.get("step"))
    recipes = [store.get(address).recipe for address in addresses]
    seconds = sum(recipe["seconds"] for recipe in recipes)
    if seconds > MOMENT_S or any(recipe.get("tools", "unknown") for recipe in recipes):
        return None
    return f"in this process: {len(recipes)} stage(s) that took {seconds:.1f} s"
