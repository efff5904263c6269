"""Search for a text or a pattern in all prompts, replies, tasks and documents."""

from __future__ import annotations

import re

import duckdb
from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from flows.app.viewer.text import shown
from flows.app.viewer.view import ALL_RUNS, Page, url
from warehouse.schemas import Row

router = APIRouter()
KINDS = {
    "rollouts": ("rollout", "rollout_id"),
    "tasks": ("task", "task_id"),
    "documents": ("document", "document_id"),
    "prompts": ("group", "prompt_id"),
}
AROUND = 110  # characters shown on either side of a match
HITS = 50  # most matches that a statement returns


@router.get("/search", response_class=HTMLResponse)
def search(
    view: Page, text: str = "", run: str = "", role: str = "", regex: bool = False
) -> HTMLResponse:
    """The form, and a place for the results of each kind, which load separately and appear as they
    arrive. With a role, only rollouts of this role are searched, even without a text."""
    runs = view.lake.catalogue.runs()
    if role:
        kinds = ["rollouts"]
    elif text:
        kinds = list(KINDS)
    else:
        kinds = []
    return view.page(
        "search",
        "Search",
        form={
            "text": text,
            "run": run if run in runs else ALL_RUNS,
            "role": role,
            "regex": regex,
        },
        runs=runs,
        kinds=kinds,
    )


@router.get("/search/{kind}", response_class=HTMLResponse)
def results(
    view: Page,
    kind: str,
    text: str = "",
    run: str = "",
    role: str = "",
    regex: bool = False,
) -> HTMLResponse:
    """Rows of one kind that contain `text` or, if `regex`, match it as a regular expression.

    Searches one run, or all runs if `run` is empty; if `role` is given, only rollouts of this role.
    Raises HTTPException (404) for a kind of row that cannot be searched.
    """
    if kind not in KINDS:
        raise HTTPException(404, f"there is no search by {kind}")
    scope = run if run in view.lake.catalogue.runs() else ALL_RUNS
    pattern = text if regex else re.escape(text)
    rows: list[Row] = []
    problem = None
    try:
        if kind == "rollouts" and (text or role):
            rows = view.rows("search_rollouts", run=scope, pattern=pattern, role=role)
        elif text:
            rows = view.rows(f"search_{kind}", run=scope, text=text, pattern=pattern)
    except duckdb.InvalidInputException as fault:
        problem = str(fault)
    page, key = KINDS[kind]
    hits = [
        {
            **row,
            "url": url(page, row["run"], id=row[key]),
            "hit": _around(row["text"] or "", row["found"]["before"], row["found"]["match"]),
        }
        for row in rows
    ]
    return view.page("results", kind, problem=problem, rows=hits, hits=HITS)


def _around(whole: str, before: str, match: str) -> Markup:
    """A match with a little of the text on either side.

    DuckDB supplies the text before the match: it matches patterns in linear time, while Python's
    `re` can take practically forever on some of them.
    """
    start = len(before)
    end = start + len(match)
    hit = Markup('<span class="hit">{}</span>').format(shown(match, cut=4 * AROUND))
    around = shown(whole[max(0, start - AROUND) : start]) + hit + shown(whole[end : end + AROUND])
    if start > AROUND:
        around = Markup("…") + around
    if end + AROUND < len(whole):
        around += "…"
    return around
