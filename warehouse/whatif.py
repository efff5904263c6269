"""What a run's rewards and selections would be with another setting, reward, filter or window.

They are computed from stored tables. Nothing is sampled and nothing is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warehouse.freshness import Again, Recipe, changed_settings, inputs
from warehouse.rerun import SAMPLERS, Inquiry
from warehouse.schemas import PROMPTS
from warehouse.store import Store
from warehouse.table import Table

CODE = "code"


@dataclass(kw_only=True)
class WhatIf(Inquiry):
    """Replays a run and computes in `scratch` the tables that would have come out differently.

    The flow reads the stored tables, so it takes the same steps again. Of the tables in `wanted`,
    those whose recipe differs from the stored one are rebuilt in `scratch`, and so are those that
    read a changed table. Prompts, rollouts and updates stay as they are. Raises ValueError if a
    setting would have changed one of these.
    """

    scratch: Store
    wanted: frozenset[str]
    instead: dict[str, Table] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def passed(
        self, table: Table, recipe: Recipe, again: Again, arguments: Mapping[str, Any]
    ) -> None:
        """Compute the table in `scratch` if it is wanted and would differ. Raises ValueError if the
        setting would have changed a prompt, a rollout or an update."""
        if SAMPLERS & set(recipe["tools"]) or table.schema is PROMPTS:
            old = _without_code(table.recipe)
            change = next(changed_settings(old, _without_code(recipe)), None)
            if change:
                raise ValueError(
                    f"{table.address} was {change}: a what-if does not ask, sample or train."
                    " `selfplay why RUN --set KEY=VALUE` lists what the change would rebuild"
                )
            return
        if table.address not in self.wanted:
            return
        if recipe["key"] == table.recipe["key"] and not any(
            source in self.instead for source, _ in inputs(recipe)
        ):
            return
        new = again(self.scratch, lambda source: self.instead.get(source.address, source))
        self.made.append(table.address)
        if new.content_hash != table.content_hash:
            self.instead[table.address] = new


def leading_to(store: Store, addresses: frozenset[str]) -> frozenset[str]:
    """The given addresses, and those of all tables that their tables were made from."""
    reached: set[str] = set()
    waiting = list(addresses)
    while waiting:
        address = waiting.pop()
        if address in reached:
            continue
        reached.add(address)
        table = store.find(address)
        if table:
            waiting += [source for source, _ in inputs(table.recipe)]
    return frozenset(reached)


def _without_code(recipe: Recipe) -> Recipe:
    """The recipe's parameters without the code of functions among them.

    A change of code is no reason to sample again.
    """
    return {"params": _settings(recipe.get("params", {}))}


def _settings(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _settings(part) for name, part in value.items() if name != CODE}
    if isinstance(value, list):
        return [_settings(part) for part in value]
    return value
