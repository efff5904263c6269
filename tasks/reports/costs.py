"""What a run's scores cost: the steps, tokens and seconds of all tables that led to an update."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

from warehouse.freshness import inputs
from warehouse.provenance import within
from warehouse.schemas import ROLLOUTS, UPDATES, Row
from warehouse.store import Store, Table

COSTS = {
    "steps": "optimizer steps",
    "tokens": "sampled tokens",
    "seconds": "seconds of stages behind updates",
}


def costs(store: Store, run: str) -> dict[int, Row]:
    """The cost of all players' updates together by the end of each iteration, from 0 on.

    Measurements (held-out scores, probes, monitors) and the time between stages do not count: a run
    that was stopped and resumed costs the same as an uninterrupted one.
    """
    tables = list(store.reached(run))
    spent: dict[int, Row] = defaultdict(lambda: dict.fromkeys(COSTS, 0))
    for table in _led_to_updates(tables):
        of_iteration = spent[table.at.iteration or 0]
        of_iteration["seconds"] += table.recipe["seconds"]
        if table.schema is UPDATES:
            of_iteration["steps"] += table.num_rows
        if table.schema is ROLLOUTS:
            of_iteration["tokens"] += _sampled(table)
    reached = range(1 + max((table.at.iteration or 0 for table in tables), default=0))
    sums = itertools.accumulate((spent[t] for t in reached), _added)
    return dict(zip(reached, sums, strict=True))


def with_costs(store: Store, rows: Iterable[Row]) -> list[Row]:
    """Rows with a run and an iteration, each with the run's costs up to that iteration.

    A row of an iteration that the store does not hold has no costs.
    """
    rows = list(rows)
    of_run = {run: costs(store, run) for run in {row["run"] for row in rows}}
    return [{**row, **of_run[row["run"]].get(row["iteration"], {})} for row in rows]


def _led_to_updates(tables: list[Table]) -> list[Table]:
    """The updates and all tables they were made from.

    In a fork, recipes name tables of the source run; the tables at the same places in this run are
    used instead.
    """
    at = {within(table.address): table for table in tables}
    reached: set[str] = set()
    waiting = [within(table.address) for table in tables if table.schema is UPDATES]
    while waiting:
        place = waiting.pop()
        if place in at and place not in reached:
            reached.add(place)
            waiting += [within(source) for source, _ in inputs(at[place].recipe)]
    return [at[place] for place in sorted(reached)]


def _sampled(table: Table) -> float:
    """The sampled tokens of a table; NaN if its rows were cleaned away."""
    if not table.has_rows:
        return math.nan
    return sum(
        sum(batch["num_sampled_tokens"].to_pylist())
        for batch in table.batches(["num_sampled_tokens"])
    )


def _added(one: Row, other: Row) -> Row:
    return {name: one[name] + other[name] for name in COSTS}
