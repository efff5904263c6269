"""What a flow run may do instead of resuming: rerun some stages, or only report what is stale."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warehouse.address import Address, no_run
from warehouse.freshness import INHERITED, NEVER_MADE, Again, Playing, Recipe
from warehouse.provenance import sources
from warehouse.store import Store
from warehouse.table import Table, find_table

SAMPLERS = {"fleet", "trainer", "harness"}  # tools of stages that sample or train


class Unmade(RuntimeError):
    """An inquiry reached a table that does not exist."""


class Enough(Exception):
    """Everything requested is rebuilt: the flow stops here."""


@dataclass
class Inquiry(Playing):
    """Builds nothing: takes every table as it is, and notes whether a run would rebuild it and why.

    `reasons`: addresses that the flow reaches, each with the reason or None; `stopped` says
    why the flow would stop by itself after them, if it would.
    """

    builds = False
    reasons: list[tuple[str, str | None]] = field(default_factory=list)
    stopped: str | None = None

    @property
    def unmade(self) -> str | None:
        """The address at which the inquiry ended because no table exists there."""
        if not self.reasons:
            return None
        address, reason = self.reasons[-1]
        if reason == NEVER_MADE:
            return address
        return None

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        """Note why a run would build the table, and return None. Raises Unmade for a table that was
        never made, and what `Playing.why_make` raises."""
        self.reasons.append((address, super().why_make(address, made, recipe)))
        if made is None:
            raise Unmade(f"{address} was never made")
        return None


@dataclass
class Rerun(Playing):
    """Rebuilds the tables at `addresses`, once per `rerun_id`.

    A retry of the same rerun continues with the rest.

    Other tables follow the usual rule, so exactly those that depend on a changed result are
    rebuilt. With `dependents` they are rebuilt even if the result is the same. With `only` nothing
    else is touched, and the flow stops when the last of the addresses is rebuilt.
    """

    rerun_id: str
    addresses: frozenset[str]
    dependents: bool = False
    only: bool = False
    _passed: set[str] = field(default_factory=set)

    @property
    def frees(self) -> bool:
        """False with `only`: other tables then count as fresh unchecked."""
        return not self.only

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        """As `Playing.why_make`, with the requested tables among those to rebuild.

        Also raises ValueError if, with `only`, the flow reaches a table that was never made and
        would have to be sampled or trained.
        """
        self.check_only_one(address, recipe)
        if made is not None and (self._remade(made) or INHERITED in made.recipe):
            return super().why_make(address, made, recipe)
        if made is not None and address in self.addresses:
            return "requested"
        if made is not None and self.dependents:
            for source in sources(recipe):
                if self._remade(find_table(made.root, source)):
                    return f"requested: {source} was rerun"
        if made is not None and self.only:
            return None
        if self.only and SAMPLERS & set(recipe["tools"]):
            raise ValueError(
                f"`--only` ends at {address}, which was never made; the flow did not come to "
                f"{', '.join(self.not_reached)}"
            )
        return super().why_make(address, made, recipe)

    @property
    def not_reached(self) -> list[str]:
        """The addresses to rebuild that the flow has not reached."""
        return sorted(self.addresses - self._passed)

    def notes(self) -> Recipe:
        """The id of the rerun, by which a retry recognises the tables that it has rebuilt."""
        return {"rerun": self.rerun_id}

    def passed(
        self, table: Table, recipe: Recipe, again: Again, arguments: Mapping[str, Any]
    ) -> None:
        """With `only`, raise Enough, which ends the flow, once all requested tables have passed."""
        self._passed |= {table.address} & self.addresses
        if self.only and self._passed == self.addresses:
            raise Enough(f"rerun: {', '.join(sorted(self.addresses))}")

    def _remade(self, table: Table | None) -> bool:
        return table is not None and table.recipe.get("rerun") == self.rerun_id


def chosen(
    store: Store, run: str, stage: str, iteration: int | None = None, step: int | None = None
) -> frozenset[str]:
    """Addresses of a run's tables by the name of a stage.

    A name is `rollouts.grade`, `rollouts` (all labels), `phase/updates` or a pattern.

    Raises ValueError if there is none; the message lists the run's tables.
    """
    tables = [table.at for table in store.tables(run)]
    if not tables:
        raise no_run(run)
    there = [at for at in tables if iteration in (None, at.iteration) and step in (None, at.step)]
    named = frozenset(str(at) for at in there if _is_named(at, stage))
    if not named:
        places = [("iteration", iteration), ("step", step)]
        where = ", ".join(f"{part} {number}" for part, number in places if number is not None)
        if where:
            where = f" in {where}"
        if not there:
            has = ", ".join(
                map(str, sorted({at.iteration for at in tables if at.iteration is not None}))
            )
            raise ValueError(f"run {run!r} has nothing{where}; its iterations are {has or 'none'}")
        names = ", ".join(sorted({at.name for at in there}))
        raise ValueError(f"run {run!r} has no stage {stage!r}{where}; there are {names}")
    return named


def _is_named(at: Address, stage: str) -> bool:
    folder, _, name = stage.rpartition("/")
    is_in = not folder or folder in at.parts[:-1] or str(at) == stage
    return is_in and (fnmatch.fnmatch(at.name, name) or at.table == name)
