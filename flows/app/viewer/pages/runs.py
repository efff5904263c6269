"""All runs, and how they differ."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from flows.app.command.compare import differing_settings, incomparable
from flows.app.viewer.alarms import alarms
from flows.app.viewer.view import ALL_RUNS, Page, View
from tasks.reports.draw import by
from tasks.reports.learning import held_out_of_runs, held_out_scores
from warehouse.schemas import Row
from warehouse.stopped import stopped
from warehouse.table import Table

router = APIRouter()


@router.get("/", response_class=HTMLResponse)
def runs(view: Page) -> HTMLResponse:
    """All runs with their scores and alarms, and how they differ."""
    evaluations = by(view.shared_rows("evaluations", run=ALL_RUNS), "run")
    at_work = {row["address"].partition("/")[0] for row in view.store.working()}
    rows = [
        _row(view, run, evaluations.get(run, []), run in at_work)
        for run in view.lake.catalogue.runs()
    ]
    return view.page("runs", "Runs", rows=rows)


def _row(view: View, run: str, evaluations: list[Row], works: bool) -> Row:
    tables = [table for table in view.lake.tables(run) if not table.holds_labels]
    request = view.store.kept(run, "request.json") or {}
    settings = dict(request.get("overrides") or {})
    if request.get("corpus"):
        settings["corpus"] = request["corpus"]
    return {
        "run": run,
        "flow": request.get("flow", ""),
        "profile": request.get("profile", ""),
        "settings": settings,
        "works": works,
        "alarms": alarms(view.store, run, evaluations),
        "stopped": stopped(view.store, run),
        "scores": held_out_scores(evaluations),
        "iterations": len({t.at.iteration for t in tables} - {None, 0}),
        "tables": len(tables),
        "rows": sum(t.num_rows for t in tables),
        "seconds": sum(t.recipe.get("seconds", 0) for t in tables),
        "bytes": sum(map(_num_bytes, tables)),
        "changed_at": max(map(_ended_at, tables), default=None),
    }


def _num_bytes(table: Table) -> int:
    files = table.contents.values()
    return sum(file["bytes"] for file in files if "cleaned" not in file)


def _ended_at(table: Table) -> float:
    """When the stage that made a table ended, in seconds since 1970."""
    return table.recipe.get("started_at", 0.0) + table.recipe.get("seconds", 0.0)


@router.get("/compare", response_class=HTMLResponse)
def compare(view: Page, run: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Marked runs side by side: the settings in which they differ, and their held-out scores."""
    names = [name for name in dict.fromkeys(run or []) if view.knows(name)]
    evaluations = [
        row
        for row in view.shared_rows("evaluations", run=ALL_RUNS)
        if row["run"] in names and row["is_held_out"]
    ]
    apart = incomparable(view.store, names) if names else {}
    compared = [row for row in evaluations if row["benchmark"] not in apart]
    return view.page(
        "compare",
        "Compare",
        names=names,
        settings=differing_settings(view.store, names) if names else [],
        figure=held_out_of_runs(compared),
        apart=apart,
    )
