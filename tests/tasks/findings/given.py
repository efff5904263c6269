"""Rows given to rules: short makers of rows, and the sentence that a rule finds in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.findings.find import Finding, findings
from tests.support.rows import publish, row
from warehouse.lake import Lake
from warehouse.store import Place, Store

RUN = "r"


def at(store: Store, iteration: int, phase: str = "training", step: int = 1) -> Place:
    return store.run(RUN).iteration(iteration).phase(phase).step(step)


def rows(place: Place, table: str, *given: dict[str, Any], label: str | None = None) -> None:
    publish(place, table, *(row(table, **columns) for columns in given), label=label)


def score(place: Place, benchmark: str, metric: str, **given: Any) -> None:
    """A measurement of an evaluation or a monitor."""
    rows(
        place,
        "evaluations",
        {"policy": "p", "benchmark": benchmark, "metric": metric, **given},
        label=metric.replace(" ", "-"),
    )


def found(store: Store, rule: str, folders: tuple[Path, ...] = ()) -> Finding | None:
    """What a rule finds in the run; the other rules are not asked, as each takes a while."""
    said = findings(Lake(store), RUN, folders=folders, only=rule)
    assert len(said) < 2
    return said[0] if said else None


def sentence(store: Store, rule: str) -> str | None:
    finding = found(store, rule)
    return finding.sentence if finding else None
