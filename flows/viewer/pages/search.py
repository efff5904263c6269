"""Search for a text or a pattern in all prompts, replies, tasks and documents."""

from __future__ import annotations

import re

import duckdb
from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from flows.viewer.text import shown
from flows.viewer.view import Page, url
from warehouse.schemas import Row

router = APIRouter()
KINDS = {
    "rollouts": ("rollout", "rollout_id"),
    "tasks": ("task", "task_id"),
    "documents": ("document", "document_id"),
    "prompts": ("group", "prompt_id"),
}
AROUND = 110  # characters shown on either side of what was found
HITS = 50  # that a statement gives at most


@router.get("/search", response_class=HTMLResponse)
def search(view: Page, text: str = "", run: str = "", regex: bool = False) -> HTMLResponse:
    """The form, and a place for each kind's results, which load separately and appear as they arrive."""
    runs = view.lake.catalogue.runs()
    asked = {"text": text, "run": run if run in runs else "", "regex": regex}
    return view.page("search", "Search", asked=asked, runs=runs, kinds=KINDS if text else [])


@router.get("/search/{kind}", response_class=HTMLResponse)
def results(view: Page, kind: str, text: str, run: str = "", regex: bool = False) -> HTMLResponse:
    if kind not in KINDS:
        raise HTTPException(404, f"there is no search by {kind}")
    page, key = KINDS[kind]
    scope = run if run in view.lake.catalogue.runs() else ""
    try:
        rows = view.rows(f"search_{kind}", run=scope, text=text, regex=regex) if text else []
    except duckdb.InvalidInputException as problem:
        return view.page("results", kind, problem=str(problem), rows=[], found=kind, hits=HITS)
    found = [{**row, "url": url(page, row["run"], id=row[key]), "hit": _around(row, text, regex)} for row in rows]
    return view.page("results", kind, problem=None, rows=found, found=kind, hits=HITS)


def _around(row: Row, text: str, regex: bool) -> Markup:
    """The match, with a little of the text before and after it."""
    whole = row["text"] or ""
    at, end = 0, 0
    if regex:
        try:
            match = re.search(text, whole)
        except re.error:  # DuckDB's patterns (RE2) are not quite Python's
            match = None
        at, end = match.span() if match else (0, 0)
    elif text in whole:
        at, end = (start := whole.index(text)), start + len(text)
    before, after = whole[max(0, at - AROUND) : at], whole[end : end + AROUND]
    return (
        Markup("…" if at > AROUND else "")
        + shown(before)
        + Markup('<span class="hit">{}</span>').format(shown(whole[at:end], cut=4 * AROUND))
        + shown(after)
        + Markup("…" if end + AROUND < len(whole) else "")
    )
