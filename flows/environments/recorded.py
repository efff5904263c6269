"""What a run's stages were called with: its filters, readers, rules and judges as objects.

The run is played again without running any stage, as in `selfplay why`. So for any method, wherever
its folder is, the scorer is the one that the method's own code names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.monitors.monitor import POOL
from warehouse.freshness import Again, Recipe
from warehouse.rerun import Inquiry
from warehouse.schemas import EVALUATIONS, REWARDS, Schema
from warehouse.table import Table

KEPT = "kept"  # label of a filter's measurement, which every method makes


@dataclass(frozen=True)
class Call:
    """A stage's call: the table that it made, and its arguments by name."""

    table: Table
    arguments: Mapping[str, Any]

    def tables(self, name: str) -> tuple[Table, ...]:
        """The tables that were passed as `name`, either directly or in the arguments of the call's
        measure, reward or prompt; empty if there are none."""
        value = self.arguments.get(name)
        if value is None:
            for group in ("arguments", "tables"):
                value = value or (self.arguments.get(group) or {}).get(name)
        if isinstance(value, Table):
            return (value,)
        return tuple(table for table in value or () if isinstance(table, Table))


@dataclass
class Recording(Inquiry):
    """Records the call of every stage that the run reaches, by the address of its table."""

    calls: dict[str, Call] = field(default_factory=dict)

    def passed(
        self, table: Table, recipe: Recipe, again: Again, arguments: Mapping[str, Any]
    ) -> None:
        self.calls[table.address] = Call(table, arguments)

    def of(self, schema: Schema) -> Iterator[Call]:
        """The calls that made tables of one kind, in the run's order."""
        return (call for call in self.calls.values() if call.table.schema is schema)

    def filtered(self) -> Iterator[Table]:
        """The tables that say which candidates the run's filters kept, in the run's order."""
        seen = set[str]()
        for call in self.of(EVALUATIONS):
            is_of_filter = call.table.at.label == KEPT and call.arguments.get("benchmark") == POOL
            for table in call.tables("chosen") if is_of_filter else ():
                if table.address not in seen:
                    seen.add(table.address)
                    yield table

    def scored(self, *wanted: str) -> Iterator[Call]:
        """The calls that computed rewards from answers and all `wanted` tables."""
        for call in self.of(REWARDS):
            if call.tables("answers") and all(call.tables(name) for name in wanted):
                yield call
