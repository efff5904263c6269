"""Turn a plain function of tables and values into a stage.

A stage function takes published tables and values and yields the rows of one table: dicts, Arrow tables, or, for
millions of rows, whole Parquet files. The decorator owns the rest:
address, freshness, lock, whole-or-nothing writing, the recipe beside the rows, and the Prefect task that shows it. The
store is the only cache: if the published table has the same recipe, the stage is not rerun, and the log says so. Then
it is no Prefect task either: Prefect takes ten times as long to start one as the store takes to answer.
"""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints, is_typeddict, overload

import pyarrow as pa
from pydantic import BaseModel

from tasks.processes.meter import Meter
from warehouse.address import Address
from warehouse.code import fingerprint, module_fingerprint
from warehouse.draft import Draft, count_reasons, hash_json, to_chunks
from warehouse.freshness import Again, key_of
from warehouse.schemas import Row, Schema
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")

R = TypeVar("R")
Keyed = TypeVar("Keyed", bound=Mapping[str, Any])
Rows = Iterable[Mapping[str, Any] | pa.Table | pa.RecordBatch | Path]
Tables = Table | Sequence[Table]
OF_STORE = ("draft", "shards", "behind")  # parameters that the store gives to a stage


def stage(
    schema: Schema, tools: tuple[str, ...] = (), code: tuple[Callable[..., Any] | str, ...] = ()
) -> Callable[[Callable[..., Rows]], Callable[..., Table]]:
    """Turn a function that yields rows of `schema` into a stage.

    Call the stage as `f(place, ..., label=None)`: `place` says where it writes, `label` tells apart tables of one kind
    at one place. Parameters named in `tools` (engines, progress) do the work but do not change the result: the recipe
    has their names, its key does not. `code` names what they run in other processes: functions, or modules that are
    too heavy to import. The decorator fills in four parameters: `draft`, to write files beside the rows; `shards`, a
    place for partial results that should survive a kill; `behind`, the writes of earlier tables that are still under
    way; and `address`.
    """

    def decorate(function: Callable[..., Rows]) -> Callable[..., Table]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run(place: Place, *args: Any, label: str | None = None, **kwargs: Any) -> Table:
            address = place.address(schema.name, label)
            given = {**dict.fromkeys(OF_STORE), "address": address}
            bound = signature.bind(*args, **kwargs, **{k: v for k, v in given.items() if k in signature.parameters})
            bound.apply_defaults()
            decisive = {k: v for k, v in bound.arguments.items() if k not in (*tools, *OF_STORE)}
            recipe = {**make_recipe(function, decisive, schema, code), "tools": list(tools)}
            work = functools.partial(_make, place, address, schema, function, bound, recipe)
            table = _fresh(place, address, recipe)
            if table is None:
                table = _as_prefect_task(work, function.__name__.lstrip("_"), Address.parse(address))
            for watch in place.store.watchers:
                watch(table)
            place.store.freshness.passed(table, recipe, again(place, args, kwargs, label))
            return table

        def again(place: Place, args: Any, kwargs: Any, label: str | None) -> Again:
            return lambda store, other: run(
                replace(place, store=store), *exchanged(args, other), label=label, **exchanged(kwargs, other)
            )

        return run

    return decorate


def exchanged(value: Any, other: Callable[[Table], Table]) -> Any:
    """An argument with each table in it replaced by `other(table)`."""
    if isinstance(value, Table):
        return other(value)
    if isinstance(value, functools.partial):
        return functools.partial(value.func, *exchanged(value.args, other), **exchanged(value.keywords, other))
    if isinstance(value, dict):
        return {name: exchanged(part, other) for name, part in value.items()}
    return type(value)(exchanged(part, other) for part in value) if type(value) in (list, tuple) else value


def _fresh(place: Place, address: str, recipe: dict[str, Any]) -> Table | None:
    """The published table, unless it is stale. Raises RuntimeError if another process is replacing it."""
    if place.store.freshness.builds:
        place.store.check_free(address)
    made = place.store.find(address)
    if place.store.freshness.why_make(address, made, recipe) is not None or made is None:
        return None
    log.log(place.store.log_level, "%s: fresh, %d rows", address, made.num_rows)
    return made


def _as_prefect_task(work: Callable[[], Table], name: str, at: Address) -> Table:
    """`work` as a task of the flow run, if there is one; its iteration and phase are tags to filter by."""
    context = sys.modules.get("prefect.context")  # if it was never imported, no flow is running
    if context is None or context.FlowRunContext.get() is None:
        return work()
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    tags = [tag for tag in (at.iteration is not None and f"iteration {at.iteration}", at.phase) if tag]

    @task(name=name, task_run_name=at.shown, tags=tags, cache_policy=NO_CACHE, persist_result=False)
    def make() -> Table:
        return work()

    return make()


def _make(
    place: Place,
    address: str,
    schema: Schema,
    function: Callable[..., Rows],
    bound: inspect.BoundArguments,
    recipe: dict[str, Any],
) -> Table:
    store, arguments = place.store, bound.arguments
    store.behind.check()
    with store.lock(address):
        made = store.find(address)
        why = store.freshness.why_make(address, made, recipe)
        if why is None and made is not None:  # another process made it meanwhile
            return made
        if made is not None:
            log.log(store.log_level, "%s: stale, rebuilding: %s", address, why)
        started, meter = time.time(), Meter()
        counts: Counter[str] = Counter()
        with store.draft(schema) as draft:
            shards = store.shards(schema, address, recipe["key"])
            ours = zip(OF_STORE, (draft, shards, store.behind), strict=True)
            arguments.update({k: v for k, v in ours if k in arguments})
            _fill(draft, function(*bound.args, **bound.kwargs), counts)
            tools = [arguments[name] for name in recipe["tools"]]
            seconds = time.time() - started + sum(getattr(tool, "ahead_s", 0.0) for tool in tools)
            notes = {
                **store.freshness.notes(),
                "started_at": started,
                "seconds": round(seconds, 3),
                "gpu_s": round(seconds * num_gpus(tools), 3),
                "tokens": draft.tokens,
                **meter.notes(),
                "counts": dict(counts),
            }
            table = store.publish(draft, address, {**recipe, **notes})
    store.write_behind(table, draft.awaited)
    reasons = "".join(f", {n} {reason}" for reason, n in counts.most_common(3))
    log.log(store.log_level, "%s: %d rows in %.1f s%s", address, table.num_rows, seconds, reasons)
    return table


def num_gpus(tools: Iterable[Any]) -> int:
    """GPUs that engines or a trainer hold while a stage works."""
    return sum(getattr(tool, "num_gpus", 0) for tool in tools)


def _fill(draft: Draft, rows: Rows, counts: Counter[str]) -> None:
    for chunk in to_chunks(rows):
        draft.write(chunk)
        counts.update(count_reasons(chunk, draft.schema))


def make_recipe(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    schema: Schema,
    code: tuple[Callable[..., Any] | str, ...] = (),
) -> dict[str, Any]:
    """Everything that determines the result: code, columns, inputs by content, parameters; and a key of all that."""
    far = [module_fingerprint(c) if isinstance(c, str) else fingerprint(c) for c in code]
    inputs = {k: v for k, v in arguments.items() if isinstance(v, Table)}
    recipe = {
        "stage": f"{function.__module__}.{function.__qualname__}",
        "code": dict(sorted(functools.reduce(operator.or_, far, fingerprint(function)).items())),
        "columns": hash_json(str(schema.arrow)),
        "inputs": {k: {"address": t.address, "content_hash": t.content_hash} for k, t in inputs.items()},
        "params": {k: describe(v) for k, v in arguments.items() if k not in inputs},
    }
    return {**recipe, "key": key_of(recipe)}


def describe(value: Any) -> Any:
    """A parameter as JSON: tables by content, functions by their code, models by their fields."""
    if isinstance(value, Table):
        return {"address": value.address, "content_hash": value.content_hash}
    if hasattr(value, "recipe_identity"):
        return describe(value.recipe_identity())
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, functools.partial):
        return {"function": describe(value.func), "args": describe(value.args), "kwargs": describe(value.keywords)}
    if callable(value):
        return {"code": fingerprint(value)}
    if isinstance(value, dict):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return value


@overload
def rows_of(tables: Tables) -> list[Row]: ...


@overload
def rows_of(tables: Tables, kind: type[R]) -> list[R]: ...


def rows_of(tables: Tables, kind: type | None = None) -> list[Any]:
    """All rows of a table, or of several of one kind, in order; for the type checker as the TypedDict `kind`."""
    some = [tables] if isinstance(tables, Table) else tables
    return [row for table in some for row in (table.rows(kind) if kind else table.rows())]


def rows_for(function: Callable[..., Any], tables: Mapping[str, Tables]) -> dict[str, list[Row]]:
    """The rows of `tables` for the parameters of `function`. If the rows in its annotation have fewer columns, only
    those columns are read."""
    hints, found = get_type_hints(innermost(function)), dict[str, list[Row]]()
    for name, some in tables.items():
        wanted: Any = next(iter(get_args(hints.get(name))), None)
        columns = list(get_type_hints(wanted)) if is_typeddict(wanted) else None
        found[name] = []
        for table in [some] if isinstance(some, Table) else some:
            fewer = columns is not None and len(columns) < len(table.schema.columns)
            batches = table.batches(columns) if fewer else ()
            rows = (row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict"))
            found[name] += rows if fewer else table.rows()
    return found


def rows_by(column: str, rows: Iterable[Keyed]) -> Mapping[Any, list[Keyed]]:
    """The rows by their value of a column, in order; a value that no row has gives no rows."""
    found: dict[Any, list[Keyed]] = defaultdict(list)
    for row in rows:
        found[row[column]].append(row)
    return found


def are_tables(value: Any) -> bool:
    """Whether a keyword argument is a table, or several (or none) of one kind."""
    return isinstance(value, Table) or (isinstance(value, (list, tuple)) and all(isinstance(t, Table) for t in value))


def check_tables(who: str, function: Callable[..., Any], tables: Mapping[str, Tables]) -> None:
    """Raise TypeError unless `tables` match the parameters of `function`, by name and by the rows it annotates;
    settings are keyword-only."""
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    missing = [p.name for p in named if p.default is inspect.Parameter.empty and p.name not in tables]
    if missing or tables.keys() - {p.name for p in named}:
        raise TypeError(f"{who} needs {', '.join(p.name for p in named)}; got {', '.join(tables) or 'no table'}")
    hints = get_type_hints(innermost(function))
    for name, some in tables.items():
        wanted: Any = next(iter(get_args(hints.get(name))), None)
        for table in [some] if isinstance(some, Table) else some:
            if is_typeddict(wanted) and not set(get_type_hints(wanted)) <= set(get_type_hints(table.schema.row)):
                raise TypeError(f"{who} needs {name} with rows of {wanted.__name__}; got the table {table.address}")


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    return innermost(function.func) if isinstance(function, functools.partial) else function


def name_of(function: Callable[..., Any]) -> str:
    return innermost(function).__name__
