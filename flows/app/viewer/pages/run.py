"""One run: learning curves, stages, and what is running."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from markupsafe import Markup

from flows.app.command.compare import flat
from flows.app.findings import findings
from flows.app.viewer import graph
from flows.app.viewer.alarms import alarms
from flows.app.viewer.pages.sql import links_of_row
from flows.app.viewer.text import CUT
from flows.app.viewer.view import Page, SlowParts, Statement, View, url
from tasks.findings.find import Finding
from tasks.report import collect, render_body, render_findings
from tasks.reports.about import about
from tasks.reports.learning import held_out_scores, held_out_tiles
from tasks.reports.page import report_file
from warehouse.address import Address
from warehouse.draft import hash_json
from warehouse.lake import Lake
from warehouse.progress import progress
from warehouse.schemas import Row
from warehouse.stopped import stopped

router = APIRouter()
BOX = (graph.WIDTH, graph.HEIGHT)
BODIES_KEPT = 8


@dataclass(frozen=True)
class Body:
    """The report of a run, as a part of its page, and the statements that were run for it."""

    html: Markup
    statements: list[Statement]


@router.get("/run/{run}", response_class=HTMLResponse)
def overview(view: Page, run: str, iteration: int | None = None) -> HTMLResponse:
    """A run: its progress, its settings, and its stages, of one iteration if one is given."""
    request = {"flow": "", "profile": "", **(view.store.kept(run, "request.json") or {})}
    return view.page(
        "run",
        run,
        **_head(view),
        request=request,
        has_report=report_file(view.store, run).is_file(),
        settings=flat(view.store.kept(run, "config.json") or {}),
        about=about(view.store, run),
        **_stages(view, iteration),
    )


@router.get("/run/{run}/head", response_class=HTMLResponse)
def head(view: Page, run: str) -> HTMLResponse:
    """The part of the page that changes while the run is at work; it reloads itself."""
    return view.page("head", run, **_head(view), live=_live(view))


def _head(view: View) -> dict[str, Any]:
    """The values for the part of the page above the figures."""
    run = view.run
    evaluations = view.shared_rows("evaluations")
    tables = [table for table in view.lake.tables(run) if not table.holds_labels]
    return {
        "alarms": alarms(view.store, run, evaluations),
        "stopped": stopped(view.store, run),
        "tiles": held_out_tiles(evaluations),
        "tile_urls": [
            _worst_answers(run, scores[-1]) for scores in held_out_scores(evaluations).values()
        ],
        "iterations": _iterations(view),
        "progress": progress(view.lake.catalogue, run),
        "seconds": _seconds(view),
        "num_tables": len(tables),
        "num_rows": sum(table.num_rows for table in tables),
        # figures and findings are redrawn for a new score or iteration
        "version": hash_json([len(evaluations), _iterations(view)])[:12],
    }


def _worst_answers(run: str, evaluation: Row) -> str:
    return url(
        "rollouts", run, iteration=evaluation["iteration"], phase="evaluation", order="worst"
    )


def _stages(view: View, chosen: int | None) -> dict[str, Any]:
    """What is published and being built in the chosen iteration, by default the last."""
    iterations = _iterations(view)
    iteration = chosen
    if iteration is None and iterations:
        iteration = iterations[-1]
    return {
        "chosen": chosen,
        "iteration": iteration,
        "graphs": _graphs(view, iteration),
        "live": _live(view),
        "box": BOX,
    }


@router.get("/run/{run}/figures", response_class=HTMLResponse)
def figures(
    view: Page, slow_parts: SlowParts, run: str, iteration: int | None = None
) -> HTMLResponse:
    """The part of the page that it shares with reports: figures, examples and numbers, up to the
    given iteration, by default the last.

    It loads separately, since it takes a second or more.
    """
    last = max(_iterations(view), default=0)
    # a later iteration would only add empty columns to tables
    iteration = last if iteration is None else min(iteration, last)
    body = slow_parts.compute(_body, run, iteration, version_of(view))
    return view.page("figures", run, body=body.html, statements=body.statements)


@router.get("/run/{run}/findings", response_class=HTMLResponse)
def what_to_know(view: Page, slow_parts: SlowParts, run: str) -> HTMLResponse:
    """The part of the page that lists the run's findings; empty for a run without problems."""
    html = slow_parts.compute(_findings, run, version_of(view))
    address = url("findings", run)
    return HTMLResponse(
        f'<div id="findings" hx-get="{address}" hx-trigger="refresh" hx-swap="outerHTML">'
        f"{html}</div>"
    )


@router.get("/run/{run}/finding", response_class=HTMLResponse)
def finding(
    view: Page, run: str, rule: str, iteration: int | None = None, go: bool = False
) -> Response:
    """One finding with its rows and the SQL that selects them; with `go`, a redirect to the page
    that shows such rows.

    Raises HTTPException (404) if the rule has no finding.
    """
    of_rule = [one for one in findings(view.lake, run, iteration, only=rule) if one.rule == rule]
    if not of_rule:
        raise HTTPException(404, f"the rule {rule} says nothing of {run} now")
    if go:
        return RedirectResponse(_page_of(of_rule[0], run))
    return view.page(
        "finding", "Finding", finding=of_rule[0], links=_links_of(view, of_rule[0].rows)
    )


# maps a finding's page to the viewer's page
PAGES = {"stages": "", "overview": "", "updates": "updates", "group": "rollouts"}


def _page_of(one: Finding, run: str) -> str:
    first = one.rows[0] if one.rows else {}
    if one.page == "group" and first.get("group_id"):
        return url("group", run, id=first["group_id"])
    page = PAGES.get(one.page, one.page)
    return url(page, run, iteration=one.iteration, phase=one.phase, step=one.step)


def _links_of(view: View, rows: Sequence[Row]) -> list[dict[str, str]]:
    return [links_of_row(row, view.run) for row in rows]


@lru_cache(maxsize=BODIES_KEPT)
def _findings(lake: Lake, run: str, version: str) -> str:
    """The run's findings as HTML, cached until a table of the run changes, and with it
    `version`."""
    return render_findings(findings(lake, run), viewer=url("", run), iteration=None)


def version_of(view: View) -> str:
    """A hash of all tables of the run and of the reason why it stopped, if it did."""
    cause = stopped(view.store, view.run)
    tables = view.lake.tables(view.run)
    return hash_json([str(cause), [[t.address, t.content_hash] for t in tables]])


@lru_cache(maxsize=BODIES_KEPT)
def _body(lake: Lake, run: str, iteration: int, version: str) -> Body:
    """The body of an iteration's report, cached until a table of the run changes, and with it
    `version`."""
    view = View(lake, run)
    contents = collect(view.source(iteration), viewer=url("", run))
    return Body(Markup(render_body(contents, longest=CUT)), view.statements)


@router.get("/run/{run}/report")
def report(view: Page, run: str, iteration: int | None = None) -> FileResponse:
    """The static report of an iteration, or the latest one.

    Raises HTTPException (404) if there is no such report.
    """
    path = report_file(view.store, run, iteration)
    if not path.is_file():
        place = run if iteration is None else f"{run}, iteration {iteration}"
        raise HTTPException(404, f"there is no report of {place}")
    return FileResponse(path, media_type="text/html")


@router.get("/run/{run}/stages", response_class=HTMLResponse)
def stages(view: Page, run: str, iteration: int | None = None) -> HTMLResponse:
    """The part of the page that shows what is published and what is being built; it reloads itself
    while the run is at work."""
    return view.page("stages", run, **_stages(view, iteration))


def _iterations(view: View) -> list[int]:
    numbers = {table.at.iteration for table in view.lake.tables(view.run)}
    return sorted(number for number in numbers if number is not None)


def _graphs(view: View, iteration: int | None) -> list[graph.Graph]:
    tables = view.lake.tables(view.run)
    current = {table.address: table.content_hash for table in tables}
    working = [work["address"] for work in view.store.working(view.run)]
    return graph.graphs([t for t in tables if t.at.iteration == iteration], current, working)


def _live(view: View) -> list[Row]:
    """Running stages, with their rows so far and the rows of the last stage of the same name."""
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
    """Seconds by stage, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for table in view.lake.tables(view.run):
        stage = table.recipe.get("stage", "").rsplit(".", 1)[-1].lstrip("_")
        seconds[stage] += table.recipe.get("seconds", 0)
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))
