"""Monitored metrics of a run that exceed the limits of its configuration."""

from __future__ import annotations

from tasks.monitor import is_beyond, is_of
from warehouse.schemas import Row
from warehouse.store import Store

MONITOR = " monitor"  # how the benchmarks of monitors end
BOUNDS = {"max": "largest", "min": "smallest"}


def alarms(store: Store, run: str, evaluations: list[Row]) -> list[Row]:
    """One row per metric and iteration: iteration, metric, value, limit. `evaluations` come from
    `sql/evaluations.sql`."""
    limits = ((store.kept(run, "config.json") or {}).get("monitor") or {}).items()
    found = []
    for name, limit in limits:
        for row in evaluations:
            if limit is None or not is_of(row["metric"], name) or not row["benchmark"].endswith(MONITOR):
                continue
            value = row[BOUNDS[name.partition("_")[0]]]
            if is_beyond(name, value, limit):
                found.append({"iteration": row["iteration"], "metric": row["metric"], "value": value, "limit": limit})
    return sorted(found, key=lambda row: (row["iteration"] or 0, row["metric"]))
