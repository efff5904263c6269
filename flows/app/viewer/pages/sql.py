"""One SELECT over the views of all runs, with its result as a table, figure, CSV or Parquet; and
the rows of a stage."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from fastapi import APIRouter, Request
from fastapi.responses import (
    FileResponse,
    HTMLResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.background import BackgroundTask

from flows.app.viewer.guard import is_linked_elsewhere
from flows.app.viewer.text import as_json
from flows.app.viewer.view import Page, View, url
from tasks.reports.statement import literal
from warehouse import export
from warehouse.address import Address
from warehouse.bounded import answer_apart
from warehouse.lake import MEMORY_LIMIT
from warehouse.schemas import TABLES, Row

router = APIRouter()
ROWS = 500  # rows of a result that are shown; the files have all
NAME = 80  # maximum length of a text that names a point
POINTS = 5000  # points of a result that are drawn
SHOWN_S = 60.0  # time limit of a statement whose result is shown
FILE_S = 600.0  # time limit of a statement whose result is saved
FIRST = """select run, iteration, benchmark, metric, score
from evaluations
where metric = 'score'
order by all"""
FAULTS = (ValueError, duckdb.Error)
LINES_AT_ONCE = 1000  # lines per block of a response; each block takes a thread's turn
# maps a column of a result to the page that shows what it identifies
PAGES = {
    "rollout_id": "rollout",
    "judge_rollout_id": "rollout",
    "task_id": "task",
    "document_id": "document",
    "prompt_id": "group",
    "group_id": "group",
}


@router.get("/sql", response_class=HTMLResponse)
def sql(view: Page, request: Request, text: str = "") -> HTMLResponse:
    """The statement and the views; the result loads separately.

    If another site linked here, the statement runs only when the user asks for it.
    """
    asked = bool(text) and not is_linked_elsewhere(request)
    return view.page("sql", "SQL", text=text or FIRST, asked=asked, tables=TABLES)


@router.get("/sql/result", response_class=HTMLResponse)
def result(view: Page, text: str) -> HTMLResponse:
    """The first rows of a statement's result and its points for a figure, or what is wrong with the
    statement. The statement is stopped after `SHOWN_S` seconds."""
    started = time.perf_counter()
    rows: list[Row] = []
    numeric: list[str] = []
    more = False
    problem = None
    try:
        with _answer(view, text, SHOWN_S) as reader:
            rows, more = export.first_rows(reader, POINTS)
            numeric = _numeric_columns(rows, reader.schema)
    except FAULTS as fault:
        problem = str(fault)
    return view.page(
        "result",
        "Result",
        problem=problem,
        rows=rows[:ROWS],
        links=[_links(view, row) for row in rows[:ROWS]],
        more=more or len(rows) > ROWS,
        points=as_json([{name: _drawn(value) for name, value in row.items()} for row in rows]),
        numeric=numeric,
        seconds=time.perf_counter() - started,
        text=text,
    )


@router.get("/sql/result.csv")
def as_csv(view: Page, text: str) -> Response:
    """The whole result of a statement as CSV, streamed; status 400 with the reason if the statement
    is wrong."""
    try:
        lines = _lines(view, text)
        first = next(lines)
    except FAULTS as fault:
        return Response(str(fault), 400, media_type="text/plain")

    def whole() -> Iterator[str]:
        yield first
        while block := "".join(islice(lines, LINES_AT_ONCE)):
            yield block

    return StreamingResponse(
        whole(),
        media_type="text/csv",
        headers={"Content-Disposition": 'attachment; filename="result.csv"'},
    )


@router.get("/sql/result.parquet")
def as_parquet(view: Page, text: str) -> Response:
    """The whole result of a statement as a Parquet file; status 400 with the reason if the
    statement is wrong."""
    handle, name = tempfile.mkstemp(prefix="selfplay-sql-", suffix=".parquet")
    remove = BackgroundTask(Path(name).unlink, missing_ok=True)
    try:
        with os.fdopen(handle, "wb") as file, _answer(view, text, FILE_S) as reader:
            export.write_parquet(reader, file)
    except FAULTS as fault:
        return Response(str(fault), 400, media_type="text/plain", background=remove)
    kind = "application/vnd.apache.parquet"
    return FileResponse(name, media_type=kind, filename="result.parquet", background=remove)


@router.get("/run/{run}/table")
def table(
    view: Page,
    run: str,
    name: str,
    iteration: int | None = None,
    phase: str | None = None,
    step: int | None = None,
) -> RedirectResponse:
    """Redirect to the statement that selects the rows of a stage or, without a place, the rows of
    all tables of this name in the run."""
    kind, _, label = name.partition(".")
    at = Address(run, iteration, phase or None, step, kind, label or None)
    conditions = [f"run = {literal(at.run)}"]
    if at != Address(run, table=kind):
        exact = {"iteration": at.iteration, "phase": at.phase, "label": at.label}
        conditions += [f"{key} is not distinct from {literal(v)}" for key, v in exact.items()]
    if at.step is not None:
        conditions.append(f"step = {at.step}")
    where = " and ".join(conditions)
    source = stored_table(kind)
    text = f"select *\nfrom {source}\nwhere {where}\nlimit 200"
    return RedirectResponse(url("sql", text=text, home=run))


def stored_table(kind: str) -> str:
    """The view of a kind of table with only its stored columns; the view `rollouts` adds others."""
    return "rollouts_table" if kind == "rollouts" else kind


def _links(view: View, row: Row) -> dict[str, str]:
    """The pages to which the cells of a row link, by column: within the run that the row names, or
    else the one that the page was opened from."""
    run = row.get("run") or view.beside
    if not isinstance(run, str) or not view.knows(run):
        return {}
    links = links_of_row(row, run)
    if "run" in row:
        links["run"] = url("", run)
    return links


def links_of_row(row: Row, run: str) -> dict[str, str]:
    """The pages within a run to which a row's ids link, by column.

    >>> links_of_row({"task_id": "t1", "score": 0.5}, "mine")
    {'task_id': '/run/mine/task?id=t1'}
    """
    return {
        name: url(PAGES[name], run, id=value)
        for name, value in row.items()
        if name in PAGES and isinstance(value, str)
    }


def _numeric_columns(rows: list[Row], schema: pa.Schema) -> list[str]:
    """The names of numeric columns, even of those that are null in the first rows."""
    if not rows:
        return []
    return [name for name, kind in zip(rows[0], schema.types, strict=True) if _is_number(kind)]


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _drawn(value: Any) -> Any:
    """A value in the form that a figure needs: text, or a type that JSON has."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, int | float | None):
        return value
    return str(value)[:NAME]


def _lines(view: View, text: str) -> Iterator[str]:
    with _answer(view, text, FILE_S) as reader:
        yield from export.csv_lines(reader)


def _answer(view: View, text: str, within_s: float) -> AbstractContextManager[pa.RecordBatchReader]:
    return answer_apart(view.store.root, text, within_s, MEMORY_LIMIT)
