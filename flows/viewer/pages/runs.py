"""All runs, and how they differ."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from flows.command.compare import differing_settings
from flows.viewer.alarms import MONITOR, alarms
from flows.viewer.view import Page, View
from tasks.reports.draw import by
from tasks.reports.learning import SCORE
from warehouse.schemas import Row

router = APIRouter()


@router.get("/", response_class=HTMLResponse)
def runs(view: Page) -> HTMLResponse:
    evaluations = by(view.rows("evaluations", run=""), "run")
    at_work = {row["address"].partition("/")[0] for row in view.store.working()}
    rows = [_row(view, run, evaluations.get(run, []), run in at_work) for run in view.lake.catalogue.runs()]
    return view.page("runs", "Runs", rows=rows)


def _row(view: View, run: str, evaluations: list[Row], works: bool) -> Row:
    tables = view.lake.tables(run)
    asked = view.store.kept(run, "request.json") or {}
    ends = [t.recipe.get("started_at", 0) + t.recipe.get("seconds", 0) for t in tables]
    return {
        "run": run,
        "flow": asked.get("flow", ""),
        "profile": asked.get("profile", ""),
        "settings": {**(asked.get("overrides") or {}), **({"corpus": asked["corpus"]} if asked.get("corpus") else {})},
        "works": works,
        "alarms": alarms(view.store, run, evaluations),
        "scores": held_out(evaluations),
        "iterations": len({t.at.iteration for t in tables} - {None, 0}),
        "tables": len(tables),
        "rows": sum(t.num_rows for t in tables),
        "seconds": sum(t.recipe.get("seconds", 0) for t in tables),
        "bytes": sum(entry["bytes"] for t in tables for entry in t.contents.values() if "cleaned" not in entry),
        "last": time.strftime("%d %b %H:%M", time.localtime(max(ends))) if ends else "",
    }


def held_out(evaluations: list[Row]) -> dict[str, list[Row]]:
    """The score of each benchmark by iteration, without the measurements of monitors."""
    scores = [row for row in evaluations if row["metric"] == SCORE and not row["benchmark"].endswith(MONITOR)]
    found: dict[Any, list[Row]] = by(scores, "benchmark")
    return found


@router.get("/compare", response_class=HTMLResponse)
def compare(view: Page, run: Annotated[list[str] | None, Query()] = None) -> HTMLResponse:
    """Marked runs side by side: the settings in which they differ, and their held-out scores."""
    names = [name for name in run or [] if view.knows(name)]
    rows = [row for row in view.rows("evaluations", run="") if row["run"] in names and row["metric"] == SCORE]
    points = [
        {"x": r["iteration"], "y": r["score"], "error": r["standard_error"], "series": f"{r['run']} · {r['benchmark']}"}
        for r in rows
        if not r["benchmark"].endswith(MONITOR)
    ]
    figure = {"title": "Held-out score", "note": "bars are one standard error", "rows": points}
    return view.page(
        "compare",
        "Compare",
        names=names,
        settings=differing_settings(view.store, names) if names else [],
        figure=figure,
    )
