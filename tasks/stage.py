"""Turn a plain function of tables and values into a stage.

A stage function takes published tables and values, and yields the rows of one table: dicts, Arrow
tables, or, for millions of rows, whole Parquet files. The decorator handles the rest: the address,
freshness, the lock, all-or-nothing writing, the recipe stored beside the rows, and the Prefect task
that displays it.

A worked example, a stage that keeps long tasks:

    @stage(SELECTIONS)
    def keep_long(tasks: Table, *, min_words: int) -> Rows:
        for task in tasks.rows(Task):
            is_long = len((task["text"] or "").split()) >= min_words
            reason = None if is_long else "too short"
            yield {"task_id": task["task_id"], "kept": is_long, "reason": reason}

    place = store.run("demo").iteration(1).phase("write")
    selected = keep_long(place, tasks, min_words=5)

The call works as follows:

1. The place and the schema give the address: `demo/iter-001/write/selections`.
2. Everything that determines the rows goes into the recipe: the function's code, the columns of
   SELECTIONS, the content of the input `tasks`, and the parameter `min_words`. The recipe's `key`
   is a hash of all that.
3. If the table published at the address has that key and its bytes are intact, the call returns it
   and runs nothing: the store is the only cache. It creates no Prefect task either, because Prefect
   takes ten times as long to start one as the store takes to answer.
4. Otherwise the function runs under a lock, and its rows go to a draft beside the store's tables.
   After the last row, a single rename turns the draft into the table: a stage that fails or is
   killed leaves nothing that could be mistaken for a result.
5. The recipe is stored beside the rows, with the seconds they took and the number of rows for each
   `reason`: here, how many tasks were too short.
"""

from __future__ import annotations

import functools
import inspect
import logging
import operator
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints, is_typeddict, overload

import pyarrow as pa
from pydantic import BaseModel

from tasks.processes.meter import Meter
from warehouse.address import Address
from warehouse.code import (
    fingerprint,
    held_by,
    is_project_object,
    methods_fingerprint,
    module_fingerprint,
)
from warehouse.draft import Draft, count_reasons, hash_json, to_chunks
from warehouse.freshness import Again, key_of
from warehouse.schemas import Row, Schema
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")

R = TypeVar("R")
Keyed = TypeVar("Keyed", bound=Mapping[str, Any])
Rows = Iterable[Mapping[str, Any] | pa.Table | pa.RecordBatch | Path]
Tables = Table | Sequence[Table]
# parameters of a stage function that the store supplies when the stage has to run
FROM_STORE = ("draft", "shards", "behind")


def stage(
    schema: Schema, tools: tuple[str, ...] = (), code: tuple[Callable[..., Any] | str, ...] = ()
) -> Callable[[Callable[..., Rows]], Callable[..., Table]]:
    """Turn a function that yields rows of `schema` into a stage.

    Call the stage as `f(place, ..., label=None)`: `place` says where it writes; `label`
    distinguishes tables of the same schema at the same place.

    Parameters named in `tools` (engines, progress) do the work without changing the result: the
    recipe lists their names, but its key ignores them. A tool that does affect the result, as an
    engine does through its precision, says how in its `recipe_identity`. `code` lists what the
    tools run in other processes: functions, or the names of modules that are too heavy to import.

    The decorator supplies these parameters if the function has them: `draft`, for writing files
    beside the rows; `shards`, for partial results that should survive a kill; `behind`, the writes
    of earlier tables that are still in progress; and `address`.
    """

    def decorate(function: Callable[..., Rows]) -> Callable[..., Table]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def run(place: Place, *args: Any, label: str | None = None, **kwargs: Any) -> Table:
            address = place.address(schema.name, label)
            filled_in = {**dict.fromkeys(FROM_STORE), "address": address}
            unknown = filled_in.keys() - signature.parameters.keys()
            for name in unknown:
                del filled_in[name]
            bound = signature.bind(*args, **kwargs, **filled_in)
            bound.apply_defaults()
            decisive = {
                name: value
                for name, value in bound.arguments.items()
                if name not in tools and name not in FROM_STORE
            }
            by_tools = {
                name: bound.arguments[name].recipe_identity()
                for name in tools
                if hasattr(bound.arguments[name], "recipe_identity")
            }
            recipe = make_recipe(function, decisive | by_tools, schema, code)
            recipe["tools"] = list(tools)
            call = _Call(place, address, schema, function, bound, recipe)
            table = call.fresh_table()
            if table is None:
                task_name = function.__name__.lstrip("_")
                table = _as_prefect_task(call.make_table, task_name, Address.parse(address))
            for watch in place.store.watchers:
                watch(table)
            place.store.freshness.passed(table, recipe, again(place, args, kwargs, label), decisive)
            return table

        def again(place: Place, args: Any, kwargs: Any, label: str | None) -> Again:
            """Return a function that repeats this call in another store, with other tables."""

            def run_again(store: Any, other_table: Callable[[Table], Table]) -> Table:
                return run(
                    replace(place, store=store),
                    *replace_tables(args, other_table),
                    label=label,
                    **replace_tables(kwargs, other_table),
                )

            return run_again

        return run

    return decorate


def replace_tables(value: Any, other_table: Callable[[Table], Table]) -> Any:
    """Return an argument of a stage with every table in it replaced by `other_table(table)`."""
    if isinstance(value, Table):
        return other_table(value)
    if isinstance(value, functools.partial):
        return functools.partial(
            value.func,
            *replace_tables(value.args, other_table),
            **replace_tables(value.keywords, other_table),
        )
    if isinstance(value, dict):
        return {name: replace_tables(part, other_table) for name, part in value.items()}
    if type(value) in (list, tuple):  # a subclass, such as a named tuple, holds no tables
        return type(value)(replace_tables(part, other_table) for part in value)
    return value


def _as_prefect_task(work: Callable[[], Table], name: str, at: Address) -> Table:
    """Run `work`, as a Prefect task if a flow is running.

    The task has no tags: for a tagged task, Prefect asks the server for concurrency slots and
    sleeps for seconds while the server's database is busy. The run's name states the iteration,
    phase and step.
    """
    context = sys.modules.get("prefect.context")  # if it was never imported, no flow is running
    if context is None or context.FlowRunContext.get() is None:
        return work()
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    @task(name=name, task_run_name=at.shown, cache_policy=NO_CACHE, persist_result=False)
    def make() -> Table:
        return work()

    return make()


@dataclass(frozen=True)
class _Call:
    """One call of a stage: where its table goes, what makes the rows, and what determines them."""

    place: Place
    address: str
    schema: Schema
    function: Callable[..., Rows]
    bound: inspect.BoundArguments
    recipe: dict[str, Any]

    def fresh_table(self) -> Table | None:
        """The published table; None if it is missing or stale.

        Raises RuntimeError if another process is replacing it.
        """
        store = self.place.store
        if store.freshness.builds:
            store.check_free(self.address)
        published = store.find(self.address)
        why = store.freshness.why_make(self.address, published, self.recipe)
        if published is None or why is not None:
            return None
        log.log(store.log_level, "%s: fresh, %d rows", self.address, published.num_rows)
        return published

    def make_table(self) -> Table:
        """Run the function and publish its rows."""
        store = self.place.store
        store.behind.check()
        with store.lock(self.address):
            published = store.find(self.address)
            why = store.freshness.why_make(self.address, published, self.recipe)
            if published is not None and why is None:  # another process made it meanwhile
                return published
            if published is not None:
                log.log(store.log_level, "%s: stale, rebuilding: %s", self.address, why)
            started = time.time()
            meter = Meter()
            with store.draft(self.schema) as draft:
                counts = self._write_rows(draft)
                seconds = time.time() - started
                tools = [self.bound.arguments[name] for name in self.recipe["tools"]]
                notes = {
                    **store.freshness.notes(),
                    "started_at": started,
                    "seconds": round(seconds, 3),
                    "gpu_s": round(seconds * num_gpus(tools), 3),
                    "tokens": draft.tokens,
                    **meter.notes(),
                    "counts": dict(counts),
                }
                table = store.publish(draft, self.address, {**self.recipe, **notes})
        store.write_behind(table, draft.awaited)
        reasons = "".join(f", {n} {reason}" for reason, n in counts.most_common(3))
        log.log(
            store.log_level,
            "%s: %d rows in %.1f s%s",
            self.address,
            table.num_rows,
            seconds,
            reasons,
        )
        return table

    def _write_rows(self, draft: Draft) -> Counter[str]:
        """Write what the function yields to `draft`; return how many rows have each reason."""
        store = self.place.store
        arguments = self.bound.arguments
        from_store = {
            "draft": draft,
            "shards": store.shards(self.schema, self.address, self.recipe["key"]),
            "behind": store.behind,
        }
        for name in FROM_STORE:
            if name in arguments:
                arguments[name] = from_store[name]
        counts: Counter[str] = Counter()
        for chunk in to_chunks(self.function(*self.bound.args, **self.bound.kwargs)):
            draft.write(chunk)
            counts.update(count_reasons(chunk, draft.schema))
        return counts


def num_gpus(tools: Iterable[Any]) -> int:
    """The number of GPUs that engines or a trainer among a stage's tools hold."""
    return sum(getattr(tool, "num_gpus", 0) for tool in tools)


def make_recipe(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    schema: Schema,
    code: tuple[Callable[..., Any] | str, ...] = (),
) -> dict[str, Any]:
    """Return everything that determines the result: code, columns, inputs by content, parameters.

    The code is that of the function, of `code`, and of the methods of the project's objects among
    the arguments. The recipe's `key` is a hash of all that.
    """
    inputs = {name: value for name, value in arguments.items() if isinstance(value, Table)}
    recipe = {
        "stage": f"{function.__module__}.{function.__qualname__}",
        "code": _code_of(function, code, frozenset(_kinds(arguments))),
        "columns": hash_json(str(schema.arrow)),
        "inputs": {name: describe(table) for name, table in inputs.items()},
        "params": {
            name: describe(value) for name, value in arguments.items() if name not in inputs
        },
    }
    return {**recipe, "key": key_of(recipe)}


@functools.cache
def _code_of(
    function: Callable[..., Any],
    code: tuple[Callable[..., Any] | str, ...],
    kinds: frozenset[type],
) -> dict[str, str]:
    """The code of a stage, of what its tools run (`code`), and of the methods of `kinds`."""
    fingerprints = [fingerprint(function)]
    for part in code:
        is_module = isinstance(part, str)
        fingerprints.append(module_fingerprint(part) if is_module else fingerprint(part))
    fingerprints += map(methods_fingerprint, kinds)
    return dict(sorted(functools.reduce(operator.or_, fingerprints).items()))


def describe(value: Any) -> Any:
    """A parameter as JSON: tables by content, functions by their code, models by their fields.

    The description of a nested function includes the variables it closes over; that of a bound
    method includes its object.
    """
    if isinstance(value, Table):
        return {"address": value.address, "content_hash": value.content_hash}
    if hasattr(value, "recipe_identity"):
        return describe(value.recipe_identity())
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, functools.partial):
        return {
            "function": describe(value.func),
            "args": describe(value.args),
            "kwargs": describe(value.keywords),
        }
    if callable(value):
        described = {"code": fingerprint(value)}
        if held := held_by(inspect.unwrap(value)):
            described["holds"] = describe(held)
        return described
    if is_project_object(value) and is_dataclass(value):
        return describe(held_by(value))
    if isinstance(value, dict):
        return {str(name): describe(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [describe(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    return value


def _kinds(value: Any) -> Iterator[type]:
    """Yield the project's classes among those of a value and of everything in it."""
    if isinstance(value, Table):
        return
    if is_project_object(value):
        yield type(value)
    parts = held_by(value)
    if isinstance(value, dict):
        parts = value
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    for part in parts.values():
        yield from _kinds(part)


# ---- the rows of tables ----


def as_tables(tables: Tables) -> Sequence[Table]:
    """The tables of an argument that is either one table or several of one schema."""
    if isinstance(tables, Table):
        return [tables]
    return tables


@overload
def rows_of(tables: Tables) -> list[Row]: ...


@overload
def rows_of(tables: Tables, kind: type[R]) -> list[R]: ...


def rows_of(tables: Tables, kind: type | None = None) -> list[Any]:
    """All rows of a table, or of several of one schema, in order.

    `kind` is the TypedDict of the rows, for the type checker only.
    """
    rows: list[Any] = []
    for table in as_tables(tables):
        rows += table.rows(kind) if kind else table.rows()
    return rows


def rows_for(function: Callable[..., Any], tables: Mapping[str, Tables]) -> dict[str, list[Row]]:
    """The rows of `tables` for the parameters of `function`, by name.

    If the row type in a parameter's annotation has fewer columns than the table, only those columns
    are read.
    """
    hints = _hints(function)
    rows: dict[str, list[Row]] = {}
    for name, argument in tables.items():
        row_type = _row_type(hints.get(name))
        rows[name] = []
        for table in as_tables(argument):
            rows[name] += _rows_as(row_type, table)
    return rows


def _row_type(annotation: Any) -> type | None:
    """The row type in an annotation: `Task` in `list[Task]`; None if there is no TypedDict."""
    row_type = next(iter(get_args(annotation)), None)
    if is_typeddict(row_type):
        return row_type
    return None


def _rows_as(row_type: type | None, table: Table) -> list[Row]:
    columns = list(get_type_hints(row_type)) if row_type else table.schema.arrow.names
    if len(columns) >= len(table.schema.columns):
        return table.rows()
    rows: list[Row] = []
    for batch in table.batches(columns):
        rows += batch.to_pylist(maps_as_pydicts="strict")
    return rows


def rows_by(column: str, rows: Iterable[Keyed]) -> Mapping[Any, list[Keyed]]:
    """Group rows by their value in `column`, in order; a value that no row has gives no rows."""
    grouped: dict[Any, list[Keyed]] = defaultdict(list)
    for row in rows:
        grouped[row[column]].append(row)
    return grouped


# ---- functions that receive tables by name: prompts, rewards and measures ----


def are_tables(value: Any) -> bool:
    """Whether a keyword argument is a table or a sequence of tables, which may be empty."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(table, Table) for table in value)
    return isinstance(value, Table)


def check_tables(
    who: str,
    function: Callable[..., Any],
    tables: Mapping[str, Tables],
    settings: Collection[str] = (),
) -> None:
    """Raise TypeError unless `tables` match the parameters of `function`.

    A table must have the name of a parameter, and all columns of the row type in the parameter's
    annotation. Keyword-only parameters are settings, not tables. `settings` are the names of the
    other arguments; none may be a parameter that takes a table.
    """
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    names = [parameter.name for parameter in parameters]
    required = {p.name for p in parameters if p.default is inspect.Parameter.empty}
    if misplaced := [name for name in names if name in settings]:
        raise TypeError(
            f"{who} takes {', '.join(misplaced)} as a table, but got another value. A parameter"
            " that is a setting has to be keyword-only: put it after `*`"
        )
    if not required <= tables.keys() <= set(names):
        got = ", ".join(tables) or "no table"
        raise TypeError(f"{who} needs {', '.join(names)}; got {got}")
    hints = _hints(function)
    for name, argument in tables.items():
        row_type = _row_type(hints.get(name))
        if row_type is None:
            continue
        needed = get_type_hints(row_type).keys()
        for table in as_tables(argument):
            if not needed <= get_type_hints(table.schema.row).keys():
                raise TypeError(
                    f"{who} needs {name} with rows of {row_type.__name__}; got the table"
                    f" {table.address}"
                )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters. Raises TypeError for one that cannot be resolved."""
    inner = innermost(function)
    try:
        return get_type_hints(inner)
    except NameError as problem:
        file = inspect.getsourcefile(inner)
        raise TypeError(
            f"{inner.__name__} in {file} has a type that does not exist at run time ({problem}):"
            " import it outside of `if TYPE_CHECKING`, since the types say which columns are read"
        ) from None


def innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under any number of `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, even if some of its arguments are bound by `functools.partial`."""
    return innermost(function).__name__
