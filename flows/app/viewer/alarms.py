"""Monitored metrics of a run that exceed the limits of its configuration."""

from __future__ import annotations

from tasks.monitors.monitor import is_beyond, is_of
from tasks.reports.learning import MONITOR
from warehouse.schemas import Row
from warehouse.store import Store

BOUNDS = {"max": "largest", "min": "smallest"}


def alarms(store: Store, run: str, evaluations: list[Row]) -> list[Row]:
    """One row per metric and iteration beyond a limit: iteration, metric, value, limit.

    `evaluations` are rows of the statement `evaluations`.
    """
    settings = (store.kept(run, "config.json") or {}).get("monitor") or {}
    limits = {name: limit for name, limit in settings.items() if limit is not None}
    monitored = [row for row in evaluations if row["benchmark"].endswith(MONITOR)]
    beyond = []
    for name, limit in limits.items():
        bound = BOUNDS[name.partition("_")[0]]
        for row in monitored:
            if is_of(row["metric"], name) and is_beyond(name, row[bound], limit):
                beyond.append(
                    {
                        "iteration": row["iteration"],
                        "metric": row["metric"],
                        "value": row[bound],
                        "limit": limit,
                    }
                )
    return sorted(beyond, key=lambda row: (row["iteration"] or 0, row["metric"]))
