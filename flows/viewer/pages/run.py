"""One run: learning curves, stages, and what is running."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse, HTMLResponse

from flows.command.compare import flat
from flows.viewer import graph
from flows.viewer.alarms import alarms
from flows.viewer.pages.runs import held_out
from flows.viewer.view import Page, View, url
from tasks.reports.page import report_file
from warehouse.address import Address
from warehouse.schemas import Row

router = APIRouter()
BOX = (graph.WIDTH, graph.HEIGHT)
CURVES = (
    ("loss", "loss"),
    ("kl", "KL to the reference, nats per token"),
    ("grad_norm", "gradient norm"),
    ("clip_fraction", "share of clipped tokens"),
    ("entropy", "entropy, nats per token"),
    ("sampler_kl", "sampler-trainer KL, nats per token"),
)


@router.get("/run/{run}", response_class=HTMLResponse)
def overview(view: Page, run: str, iteration: int | None = None) -> HTMLResponse:
    evaluations = view.rows("evaluations")
    tables = view.lake.tables(run)
    iterations = sorted({t.at.iteration for t in tables if t.at.iteration is not None})
    chosen = iteration if iteration is not None else iterations[-1] if iterations else None
    asked = {"flow": "", "profile": "", **(view.store.kept(run, "request.json") or {})}
    return view.page(
        "run",
        run,
        asked=asked,
        has_report=report_file(view.store, run).is_file(),
        settings=flat(view.store.kept(run, "config.json") or {}),
        overrides=asked.get("overrides") or {},
        alarms=alarms(view.store, run, evaluations),
        scores=held_out(evaluations),
        figures=_figures(view, evaluations),
        iterations=iterations,
        iteration=chosen,
        seconds=_seconds(view),
        num_tables=len(tables),
        num_rows=sum(t.num_rows for t in tables),
        graphs=_graphs(view, chosen),
        live=_live(view),
        box=BOX,
    )


@router.get("/run/{run}/report")
def report(view: Page, run: str, iteration: int | None = None) -> FileResponse:
    """The static report of an iteration, or the latest."""
    path = report_file(view.store, run, iteration)
    if not path.is_file():
        raise HTTPException(
            404, f"there is no report of {run}{'' if iteration is None else f', iteration {iteration}'}"
        )
    return FileResponse(path, media_type="text/html")


@router.get("/run/{run}/stages", response_class=HTMLResponse)
def stages(view: Page, run: str, iteration: int | None = None) -> HTMLResponse:
    """The part of the page that shows what is published and what is being built; it reloads itself during work."""
    return view.page("stages", run, iteration=iteration, graphs=_graphs(view, iteration), live=_live(view), box=BOX)


def _graphs(view: View, iteration: int | None) -> list[graph.Graph]:
    tables = view.lake.tables(view.run)
    current = {table.address: table.content_hash for table in tables}
    working = [work["address"] for work in view.store.working(view.run)]
    return graph.graphs([t for t in tables if t.at.iteration == iteration], current, working)


def _live(view: View) -> list[Row]:
    """Running stages, with the rows stored so far, and those of the last stage of the same name."""
    last = {(t.at.phase, t.at.name): t.num_rows for t in view.lake.tables(view.run)}
    rows = []
    for work in view.store.working(view.run):
        at = Address.parse(work["address"])
        rows.append(
            {
                "address": work["address"].partition("/")[2],
                "pid": work["pid"],
                "seconds": time.time() - work["since"],
                "rows": view.store.rows_so_far(work["address"]),
                "before": last.get((at.phase, at.name)),
            }
        )
    return rows


def _seconds(view: View) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for table in view.lake.tables(view.run):
        found[table.recipe.get("stage", "").rsplit(".", 1)[-1].lstrip("_")] += table.recipe.get("seconds", 0)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _figures(view: View, evaluations: list[Row]) -> list[Row]:
    """Figures for Observable Plot: title, label of y, rows of x, y and series."""
    figures = [_held_out_figure(evaluations)]
    steps = view.rows("step_scores")
    for column, what in (("score", "score"), ("reward", "reward")):
        points = [
            {**_at(row, steps), "y": row[column], "series": _line(row)} for row in steps if row[column] is not None
        ]
        figures.append(_figure(f"Mean {what} of training rollouts", "a step", points))
    updates = view.rows("updates")
    for column, title in CURVES:
        points = [
            {**_at(row, updates), "y": row[column], "series": row["role"], "href": _update_url(view.run, row)}
            for row in updates
            if row[column] is not None
        ]
        figures.append(_figure(title[0].upper() + title[1:], "an optimizer step", points))
    return [figure for figure in figures if figure["rows"]]


def _held_out_figure(evaluations: list[Row]) -> Row:
    points = [
        {"x": row["iteration"], "y": row["score"], "error": row["standard_error"], "series": benchmark}
        for benchmark, rows in held_out(evaluations).items()
        for row in rows
    ]
    return _figure("Held-out score", "bars are one standard error", points)


def _figure(title: str, note: str, rows: list[Row]) -> Row:
    return {"title": title, "note": note, "rows": rows}


def _line(row: Row) -> str:
    return " ".join(filter(None, (row["phase"], row["label"])))


def _at(row: Row, rows: list[Row]) -> Row:
    """Iterations completed, as x: a step counts as a part of its iteration, an optimizer step as a part of its step."""
    last = max((r["step"] or 1) for r in rows)
    parts = 1 + max((r.get("optimizer_step", 0) for r in rows), default=0)
    within = (row["step"] or last) - 1 + (row.get("optimizer_step", 0) + 1) / parts
    return {"x": round((row["iteration"] or 0) - 1 + within / last, 4), "step": row["step"]}


def _update_url(run: str, row: Row) -> str:
    parts: dict[str, Any] = {key: row[key] for key in ("iteration", "phase", "step")}
    return url("update", run, **parts)
