"""Which published tables are fresh, and which are rebuilt.

Resuming, retrying, rerunning and `why` work the same way: the flow runs again, and at every stage
one of the rules below inspects the table published there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from warehouse.draft import hash_json
from warehouse.table import Damaged, Table

Recipe = dict[str, Any]
# calls a stage again in another store, on other tables
Again = Callable[[Any, Callable[[Table], Table]], Table]
NEVER_MADE = "never made"
# in the recipe of a table that a forked run shares: from which run, after which iteration
INHERITED = "inherited"


class Freshness:
    """The usual rule: a table is fresh if the same recipe made it and its bytes are unchanged."""

    builds = True  # False: nothing is built or written

    @property
    def frees(self) -> bool:
        """Whether every fresh table was checked, and so what it superseded may be removed."""
        return self.builds

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        """The reason why a stage has to run; None if the table published at its address is fresh.

        An inherited table is fresh whatever the settings are now. Raises Damaged if its files are
        not intact.
        """
        if made is None:
            return NEVER_MADE
        origin = made.recipe.get(INHERITED)
        if origin:
            problem = next(iter(made.problems()), None)
            if problem:
                raise Damaged(
                    f"{problem}; it is shared with {origin['run']!r}: fork that run again under"
                    " another name"
                )
            return None
        if made.recipe["key"] != recipe["key"]:
            return why_stale(made.recipe, recipe)
        if made.awaits:
            return f"{made.address}/{made.awaits[0]} is not written yet"
        return next(iter(made.problems()), None)

    def notes(self) -> Recipe:
        """Further entries for the recipe of a table made under this rule."""
        return {}

    def passed(
        self, table: Table, recipe: Recipe, again: Again, arguments: Mapping[str, Any]
    ) -> None:
        """Called with every table, built or fresh, before the flow continues.

        `recipe` would build it now, from the stage's `arguments`.
        """


@dataclass
class Playing(Freshness):
    """The rule while a flow is played: the flow may make only one table at an address."""

    _keys: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def reached(self) -> Set[str]:
        """The addresses that the flow has reached."""
        return self._keys.keys()

    def why_make(self, address: str, made: Table | None, recipe: Recipe) -> str | None:
        """As `Freshness.why_make`. Also raises what `check_only_one` raises."""
        self.check_only_one(address, recipe)
        return super().why_make(address, made, recipe)

    def check_only_one(self, address: str, recipe: Recipe) -> None:
        """Raise ValueError if the flow makes two tables at one address.

        Each would always replace the other.
        """
        if self._keys.setdefault(address, recipe["key"]) != recipe["key"]:
            raise ValueError(
                f"the flow makes two tables at {address}: give one of them another `label=`, or"
                " another phase or step"
            )


def key_of(recipe: Recipe) -> str:
    """A hash of what determines a table: stage, code, columns, parameters and content of inputs."""
    identity = {name: recipe[name] for name in ("stage", "code", "columns", "params")}
    inputs = {name: table["content_hash"] for name, table in recipe["inputs"].items()}
    return hash_json({**identity, "inputs": inputs})


def why_stale(old: Recipe, new: Recipe) -> str:
    """One line that names the parameter, input or code that changed since the table was made."""
    return next(changes(old, new), "another stage made it")


def changes(old: Recipe, new: Recipe) -> Iterator[str]:
    """Yield all differences between two recipes, most telling first.

    Settings, prompts and SQL come first, then inputs, columns and code.
    """
    yield from changed_settings(old, new)
    yield from _changed_names("input", dict(inputs(old)), dict(inputs(new)))
    if old.get("columns") != new["columns"]:
        yield "the table's columns changed"
    yield from _changed_names("code of", old.get("code", {}), new["code"])


def changed_settings(old: Recipe, new: Recipe) -> Iterator[str]:
    """The differences in parameters: settings, prompts and SQL."""
    yield from _changed_values("", old.get("params", {}), new["params"])


def _changed_names(noun: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            yield f"{noun} {name} is new"
        elif name not in new:
            yield f"{noun} {name} is gone"
        elif old[name] != new[name]:
            yield f"{noun} {name} changed"


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
    """Yield (address, content hash) of every table that a recipe reads.

    This includes tables at any depth in its parameters.
    """
    values = [*recipe.get("inputs", {}).values(), *recipe.get("params", {}).values()]
    for source in _tables_in(values):
        yield source["address"], source["content_hash"]


def _tables_in(value: Any) -> Iterator[dict[str, str]]:
    if _is_input(value):
        yield value
    elif isinstance(value, dict):
        yield from _tables_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _tables_in(item)


def _is_input(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"address", "content_hash"}


def _short(value: Any) -> str:
    text = str(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return text
