"""What the rows of a run were really made with, according to the recipes of its tables.

A request or a configuration says what was asked for last. After `rerun --only`, or after code or
prompts were edited, tables made earlier still hold what their own recipes say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from warehouse.draft import hash_bytes, hash_json
from warehouse.fork import FORK
from warehouse.freshness import inputs
from warehouse.schemas import UPDATES, Row
from warehouse.store import Store
from warehouse.table import Table

Kind = Literal["setting", "prompt", "SQL", "code", "policy"]
VERSION = 12  # characters of a hash that are shown
MOST_VALUES = 3  # values of one setting that are listed
LONGEST = 60  # characters of a value
PLACES = ("address", "optimizer_state")  # parameters that say where a table lies


@dataclass(frozen=True)
class Part:
    """A part of a recipe: a setting, a prompt, an SQL file, a function, or a policy.

    `value` is a setting's value or the version of anything else.
    """

    kind: Kind
    name: str
    value: str


@dataclass(frozen=True)
class DryRun:
    """The result of a dry run of the flow: the tables that it would rebuild, and why.

    `problem` says why there was no dry run, if there was none.
    """

    stale: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None


NO_DRY_RUN = DryRun(problem="no dry run was made")


@dataclass(frozen=True)
class Stale:
    """A table that no longer fits what it was made from, and why."""

    address: str
    why: str


def parts_of(recipe: Mapping[str, Any]) -> Iterator[Part]:
    """Yield everything that determined a table's rows, except the tables that it was made from."""
    for name, value in recipe.get("params", {}).items():
        if name not in PLACES:
            yield from _parts_in(name, value)
    for name, version in recipe.get("code", {}).items():
        yield Part("code", name, version)


def _parts_in(name: str, value: Any) -> Iterator[Part]:
    if isinstance(value, dict):
        yield from _parts_in_dict(name, value)
    elif isinstance(value, list) and name.endswith(".templates"):
        for template in value:
            template_name, _, version = str(template).rpartition(" ")
            yield Part("prompt", template_name, version)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from _parts_in(f"{name}[{number}]", item)
    else:
        yield Part("setting", name, _short(value))


def _parts_in_dict(name: str, value: dict[str, Any]) -> Iterator[Part]:
    keys = value.keys()
    if keys == {"address", "content_hash"}:
        return
    if keys == {"id", "content_hash"}:
        yield Part("policy", name, value["content_hash"][:VERSION])
    elif keys == {"file", "text"}:
        yield Part("SQL", value["file"], hash_bytes(value["text"].encode())[:VERSION])
    elif keys == {"code"}:
        for function, version in value["code"].items():
            yield Part("code", function, version)
    else:
        for key, inner in value.items():
            yield from _parts_in(f"{name}.{key}", inner)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    if len(text) > LONGEST:
        return f"{text[: LONGEST - 15]}... {hash_bytes(text.encode())[:VERSION]}"
    return text


def stage_of(table: Table) -> str:
    """The phase and name of a table, the same in every iteration and step.

    `solver/rollouts.judge` for `run/iter-003/solver/step-007/rollouts.judge`.
    """
    return f"{table.at.phase}/{table.at.name}" if table.at.phase else table.at.name


def code_version(recipe: Mapping[str, Any]) -> str:
    """One hash over the code that made a table, including functions among the parameters."""
    code = sorted((part.name, part.value) for part in parts_of(recipe) if part.kind == "code")
    return hash_json(code)[:VERSION]


def made_with(tables: Iterable[Table]) -> list[Row]:
    """One row per stage: its tables, the versions of its code, its settings, prompts and SQL.

    If a part has several values, they are listed, each with its number of tables.
    """
    by_stage: dict[str, list[Table]] = {}
    for table in tables:
        if "params" in table.recipe:  # else no stage made it
            by_stage.setdefault(stage_of(table), []).append(table)
    rows: list[Row] = []
    for stage, of_stage in by_stage.items():
        values: dict[str, Counter[str]] = {}
        for table in of_stage:
            for part in parts_of(table.recipe):
                if part.kind == "code" or part.value in ("None", "", "[]"):
                    continue
                name = part.name if part.kind == "setting" else f"{part.kind} {part.name}"
                values.setdefault(name, Counter())[part.value] += 1
        rows.append(
            {
                "stage": stage,
                "tables": len(of_stage),
                "code": _listed(Counter(code_version(table.recipe) for table in of_stage)),
                "made with": "; ".join(f"{name} {_listed(of)}" for name, of in values.items()),
            }
        )
    return rows


def _listed(values: Counter[str]) -> str:
    """One value, or several with their numbers of tables, as text."""
    if len(values) == 1:
        return next(iter(values))
    texts = [f"{value} ({number} tables)" for value, number in list(values.items())[:MOST_VALUES]]
    if len(values) > MOST_VALUES:
        texts.append(f"{len(values) - MOST_VALUES} more values")
    return ", ".join(texts)


def sources(recipe: Mapping[str, Any]) -> Iterator[str]:
    """Addresses of the tables that a recipe reads, and of the updates that trained its policies."""
    for address, _ in inputs(dict(recipe)):
        yield address
    for policy, _ in _policies(recipe.get("params", {})):
        yield policy


def _policies(value: Any) -> Iterator[tuple[str, str]]:
    """Id and content hash of every policy among parameters."""
    if isinstance(value, dict):
        if value.keys() == {"id", "content_hash"}:
            yield value["id"], value["content_hash"]
        else:
            for item in value.values():
                yield from _policies(item)
    elif isinstance(value, list):
        for item in value:
            yield from _policies(item)


def within(address: str) -> str:
    """The address without its run: a fork's recipes may name tables of the run it came from."""
    return address.partition("/")[2]


def places_of(tables: Sequence[Table]) -> Callable[[str], str]:
    """A function that gives the place of a source among the tables of a run.

    For a table made by this run, or by one that it was forked from, that is the address within the
    run. For any other source, such as another run's policy that this run started from, it is the
    full address.
    """
    own = lineage(Store(tables[0].root), tables[0].at.run) if tables else set()

    def place(address: str) -> str:
        if address.partition("/")[0] in own:
            return within(address)
        return address

    return place


def lineage(store: Store, run: str) -> set[str]:
    """A run and all runs that it was forked from, directly or not."""
    runs = {run}
    while (origin := store.kept(run, FORK)) and origin["run"] not in runs:
        run = origin["run"]
        runs.add(run)
    return runs


def led_to(tables: Sequence[Table], last: Iterable[Table]) -> list[Table]:
    """The tables that `last` were made from, directly or not, and `last`, in order of `tables`."""
    place_of = places_of(tables)
    at = {place_of(table.address): table for table in tables}
    reached: set[str] = set()
    waiting = [place_of(table.address) for table in last]
    while waiting:
        place = waiting.pop()
        if place in at and place not in reached:
            reached.add(place)
            waiting += [place_of(source) for source in sources(at[place].recipe)]
    return [table for place, table in at.items() if place in reached]


def made_from(tables: Sequence[Table], addresses: Iterable[str]) -> list[Table]:
    """The tables among `tables` that were made from any of the addresses, directly or not."""
    place_of = places_of(tables)
    by_source: dict[str, list[str]] = {}
    for table in tables:
        for source in sources(table.recipe):
            by_source.setdefault(place_of(source), []).append(place_of(table.address))
    first = {place_of(address) for address in addresses}
    reached: set[str] = set()
    waiting = list(first)
    while waiting:
        for place in by_source.get(waiting.pop(), []):
            if place not in reached:
                reached.add(place)
                waiting.append(place)
    return [table for table in tables if place_of(table.address) in reached - first]


def stale(store: Store, tables: Sequence[Table], known: Mapping[str, str]) -> list[Stale]:
    """The tables that no longer fit what they were made from, in the order in which they were made.

    A table is stale if a table or policy that it was made from has since been rebuilt with other
    rows. `known` has tables that are stale for a reason that only a flow can tell: its settings,
    prompts and code as they are now.
    """
    reasons = dict(known)
    place_of = places_of(tables)
    at = {place_of(table.address): table for table in tables}

    def now(source: str) -> Table | None:
        return at.get(place_of(source)) or store.find(source)

    for table in tables:
        if table.address in reasons:
            continue
        for source, content_hash in inputs(table.recipe):
            found = now(source)
            if found is not None and found.content_hash != content_hash:
                reasons[table.address] = f"{source} was rebuilt since, with other rows"
                break
        else:
            if reason := _other_policy(table, now):
                reasons[table.address] = reason
    ordered = sorted(tables, key=lambda table: table.recipe.get("started_at", 0.0))
    stale_tables = [Stale(t.address, reasons[t.address]) for t in ordered if t.address in reasons]
    begun = {of.address for of in stale_tables}
    for table in made_from(ordered, begun):
        if table.address not in begun:
            stale_tables.append(Stale(table.address, "made from tables that are stale"))
    return stale_tables


def _other_policy(table: Table, find: Callable[[str], Table | None]) -> str | None:
    for policy, content_hash in _policies(table.recipe.get("params", {})):
        update = find(policy)
        if update is None or update.schema is not UPDATES or not update.num_rows:
            continue
        if update.rows()[-1]["policy_hash"] != content_hash:
            return f"the policy {policy} was trained again since"
    return None


def cost_of(tables: Sequence[Table], addresses: Collection[str]) -> list[Row]:
    """The cost of making the tables at some addresses and everything made from them.

    One row per stage, and one for all: stale tables, those made from them, optimizer steps, tokens
    sampled or trained on, hours, GPU hours. Tables that were never made cost nothing yet.
    """
    first = [table for table in tables if table.address in addresses]
    by_stage: dict[str, list[Table]] = {}
    rebuilt = [*first, *made_from(tables, addresses)]
    for table in sorted(rebuilt, key=lambda table: table.recipe.get("started_at", 0.0)):
        by_stage.setdefault(stage_of(table), []).append(table)
    rows = [_cost_row(stage, some, addresses) for stage, some in by_stage.items()]
    return [*rows, _cost_row("all", rebuilt, addresses)]


def _cost_row(stage: str, tables: Sequence[Table], addresses: Collection[str]) -> Row:
    num_stale = sum(table.address in addresses for table in tables)
    recipes = [table.recipe for table in tables]
    return {
        "stage": stage,
        "stale": num_stale,
        "made from these": len(tables) - num_stale,
        "steps": sum(table.num_rows for table in tables if table.schema is UPDATES),
        "tokens": f"{sum(recipe.get('tokens') or 0 for recipe in recipes):,}",
        "hours": f"{sum(recipe.get('seconds') or 0 for recipe in recipes) / 3600:.3f}",
        "GPU-hours": f"{sum(recipe.get('gpu_s') or 0 for recipe in recipes) / 3600:.3f}",
    }


def by_reason(stale_tables: Iterable[Stale]) -> list[Row]:
    """One row per reason why tables are stale: their number, and the first of them."""
    rows: dict[str, Row] = {}
    for one in stale_tables:
        row = rows.setdefault(
            one.why, {"stale because": one.why, "tables": 0, "first": one.address}
        )
        row["tables"] += 1
    return list(rows.values())


def recipe_differences(one: Table, other: Table) -> list[Row]:
    """One row per part that differs between two tables' recipes: what, name, one, other.

    The runs' own names within settings do not count. Policies and the tables that were read are
    left out: they differ whenever earlier tables do.
    """
    own = (f"{one.at.run}/", f"{other.at.run}/")
    before = _by_name(one.recipe, own)
    now = _by_name(other.recipe, own)
    return [
        {"what": kind, "name": name, "one": before.get(key), "other": now.get(key)}
        for key in [*before, *(key for key in now if key not in before)]
        for kind, name in [key]
        if kind != "policy" and before.get(key) != now.get(key)
    ]


def _by_name(recipe: Mapping[str, Any], own: tuple[str, str]) -> dict[tuple[str, str], str]:
    return {
        (part.kind, part.name): within(part.value) if part.value.startswith(own) else part.value
        for part in parts_of(recipe)
    }
