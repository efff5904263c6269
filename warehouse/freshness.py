"""Which published tables stand, and which are made (again).

Resume, retry, rerun and "why" are one thing: the flow is run once more, and at every stage one of the rules below
looks at what is published there.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warehouse.store import Store, Table

Recipe = dict[str, Any]


class Freshness:
    """The rule of every run: a table stands when the same recipe made it and its bytes are those published."""

    works = True  # False: nothing is made or written

    @property
    def frees(self) -> bool:
        """Whether a table that stands was checked, so that what it has superseded may go."""
        return self.works

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        """Why a stage is to work; None when what is published at its address stands."""
        if made is None:
            return "never made"
        if made.recipe["key"] != recipe["key"]:
            return why_stale(made.recipe, recipe)
        return next(iter(made.problems()), None)

    def notes(self) -> Recipe:
        """What the recipe of a table made under this rule says besides."""
        return {}

    def passed(self, table: Table) -> None:
        """Called with every table, made or found fresh, before the flow goes on."""


class Unmade(RuntimeError):
    """An inquiry came to a table that does not exist."""


class Enough(Exception):
    """All that was asked for is made: the flow may stop here."""


@dataclass
class Inquiry(Freshness):
    """Makes nothing: takes every table that exists as it is and notes what a run would do with it and why."""

    works = False
    found: list[tuple[str, str | None]] = field(default_factory=list)

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        self.found.append((address, super().why_make(address, made, recipe)))
        if made is None:
            raise Unmade(f"{address} was never made")
        return None


@dataclass
class Rerun(Freshness):
    """Makes the tables `addresses` anew, once for each `rerun_id`: a retry of the same rerun goes on with the rest.

    Other tables follow the rule of every run, so that exactly what depends on a changed result is made again. With
    `dependents` they are made again even where the result came out the same; with `only` nothing else is touched, and
    the flow stops when the last of the addresses is made.
    """

    rerun_id: str
    addresses: frozenset[str]
    dependents: bool = False
    only: bool = False
    _passed: set[str] = field(default_factory=set)

    @property
    def frees(self) -> bool:
        return not self.only

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        if made is not None and self._remade(made):
            return super().why_make(address, made, recipe)
        if made is not None and address in self.addresses:
            return "asked for"
        if made is not None and self.dependents:
            for source, _ in inputs(recipe):
                if self._remade(made.store.find(source)):
                    return f"asked for: {source} was made again"
        if made is not None and self.only:
            return None
        return super().why_make(address, made, recipe)

    def notes(self) -> Recipe:
        return {"rerun": self.rerun_id}

    def passed(self, table: Table) -> None:
        self._passed |= {table.address} & self.addresses
        if self.only and self._passed == self.addresses:
            raise Enough(f"made again: {', '.join(sorted(self.addresses))}")

    def _remade(self, table: Table | None) -> bool:
        return table is not None and table.recipe.get("rerun") == self.rerun_id


def chosen(store: Store, run: str, stage: str, iteration: int | None = None, step: int | None = None) -> frozenset[str]:
    """Addresses of a run's tables by name: `rollouts.grade`, `rollouts` (all labels), `phase/updates` or a pattern.

    Raises ValueError naming what there is.
    """
    tables = [table.address for table in store.tables(run)]
    if not tables:
        raise ValueError(f"there is no run {run!r}; `selfplay status` lists the runs")
    wanted = {f"{part}-{n:03d}" for part, n in (("iter", iteration), ("step", step)) if n is not None}
    found = [a for a in tables if wanted <= set(a.split("/")) and _is_named(a, stage)]
    if not found:
        names = sorted({a.rsplit("/", 1)[-1] for a in tables if wanted <= set(a.split("/"))})
        where = f" in {', '.join(sorted(wanted))}" if wanted else ""
        raise ValueError(f"run {run!r} has no stage {stage!r}{where}; there are {', '.join(names) or 'none'}")
    return frozenset(found)


def _is_named(address: str, stage: str) -> bool:
    phase, _, name = stage.rpartition("/")
    *parents, last = address.split("/")
    in_phase = not phase or phase in parents or address == stage
    return in_phase and (fnmatch.fnmatch(last, name) or last.split(".")[0] == name)


def why_stale(old: Recipe, new: Recipe) -> str:
    """One line: which input, parameter or code is not what the table was made with."""
    return next(changes(old, new), "another stage made it")


def changes(old: Recipe, new: Recipe) -> Iterator[str]:
    """Every difference of two recipes, most telling first: settings, prompts and SQL, then inputs, then code."""
    yield from _changed_values("", old.get("params", {}), new["params"])
    yield from _changed_names("input", dict(inputs(old)), dict(inputs(new)))
    if old.get("columns") != new["columns"]:
        yield "the table's columns changed"
    yield from _changed_names("code of", old.get("code", {}), new["code"])


def _changed_names(noun: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{noun} {name} {'is new' if name not in old else 'is gone' if name not in new else 'changed'}"


def _changed_values(where: str, old: Any, new: Any) -> Iterator[str]:
    if _is_input(old) or _is_input(new) or old == new:
        return
    if where.endswith(".code") and isinstance(old, dict) and isinstance(new, dict):
        yield from _changed_names(f"code of {where.removesuffix('.code')}:", old, new)
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            yield from _changed_values(f"{where}.{name}".lstrip("."), old.get(name), new.get(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _changed_values(f"{where}[{i}]", before, now)
    else:
        yield f"made with {where} {_short(old)}, now {_short(new)}"


def inputs(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """(address, content hash) of every table a recipe reads, wherever in its parameters it stands."""
    for source in _tables_in([*recipe.get("inputs", {}).values(), *recipe.get("params", {}).values()]):
        yield source["address"], source["content_hash"]


def _tables_in(value: Any) -> Iterator[dict[str, str]]:
    if _is_input(value):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tables_in(item)


def _is_input(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"address", "content_hash"}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
