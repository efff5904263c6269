"""Do short work in this process: a worker would take longer to start than the work takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flows.runtime.store_root import open_store

if TYPE_CHECKING:
    from warehouse.rerun import Inquiry

MOMENT_S = 5.0


def why_in_process(
    run: str, rerun: dict[str, Any] | None, inquire: Callable[[], Inquiry]
) -> str | None:
    """Why a flow run needs no worker; None if it needs one.

    It needs none if nothing is stale, or if all stages to rerun were short and need neither an
    engine nor a trainer. `inquire` returns what the flow run would do.
    """
    store = open_store()
    if any(store.working(run)):
        return None
    if rerun is not None:
        if rerun.get("only"):
            return _why_rerun_in_process(run, rerun)
        return None
    if not any(store.tables(run)):
        return None
    stages = dict(inquire().reasons)
    if any(stages.values()):
        return None
    return f"in this process: all {len(stages)} stages are fresh"


def _why_rerun_in_process(run: str, rerun: dict[str, Any]) -> str | None:
    from warehouse.rerun import chosen

    store = open_store()
    addresses = chosen(store, run, rerun["stage"], rerun.get("iteration"), rerun.get("step"))
    recipes = [store.get(address).recipe for address in addresses]
    seconds = sum(recipe["seconds"] for recipe in recipes)
    if seconds > MOMENT_S or any(recipe.get("tools", "unknown") for recipe in recipes):
        return None
    return f"in this process: {len(recipes)} stage(s) that took {seconds:.1f} s"
