"""SQL: one SELECT over the views of all runs, its result as table, figure, CSV or Parquet; and the rows of a stage."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.background import BackgroundTask

from flows.viewer.text import as_json
from flows.viewer.view import Page, View, literal, url
from warehouse import export, readonly
from warehouse.address import Address
from warehouse.lake import MEMORY_LIMIT
from warehouse.schemas import TABLES, Row

router = APIRouter()
ROWS = 500  # shown of a result; the files have all
NAME = 80  # characters of a text that names a point
POINTS = 5000  # drawn of a result
SHOWN_S, FILE_S = 60.0, 600.0  # most seconds of a statement whose result is shown, or saved
FIRST = "select run, iteration, benchmark, metric, score\nfrom evaluations\nwhere metric = 'score'\norder by all"
FAULTS = (ValueError, duckdb.Error)


@router.get("/sql", response_class=HTMLResponse)
def sql(view: Page, text: str = "") -> HTMLResponse:
    """The statement and the views; the result loads separately."""
    return view.page("sql", "SQL", text=text or FIRST, asked=bool(text), tables=TABLES)


@router.get("/sql/result", response_class=HTMLResponse)
def result(view: Page, text: str) -> HTMLResponse:
    started = time.perf_counter()
    rows: list[Row] = []
    more, problem = False, None
    try:
        with _answer(view, text, SHOWN_S) as reader:
            rows, more = export.first_rows(reader, POINTS)
    except FAULTS as fault:
        problem = str(fault)
    return view.page(
        "result",
        "Result",
        problem=problem,
        rows=rows[:ROWS],
        more=more or len(rows) > ROWS,
        points=as_json([{name: _drawn(value) for name, value in row.items()} for row in rows]),
        numeric=[name for name in rows[0] if isinstance(rows[0][name], int | float)] if rows else [],
        seconds=time.perf_counter() - started,
        text=text,
    )


@router.get("/sql/result.csv")
def as_csv(view: Page, text: str) -> Response:
    try:
        lines = _lines(view, text)
        first = next(lines)
    except FAULTS as fault:
        return Response(str(fault), 400, media_type="text/plain")

    def whole() -> Iterator[str]:
        yield first
        yield from lines

    return StreamingResponse(
        whole(), media_type="text/csv", headers={"Content-Disposition": 'attachment; filename="result.csv"'}
    )


@router.get("/sql/result.parquet")
def as_parquet(view: Page, text: str) -> Response:
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
    view: Page, run: str, name: str, iteration: int | None = None, phase: str | None = None, step: int | None = None
) -> RedirectResponse:
    """The rows of a stage, as a statement."""
    kind, _, label = name.partition(".")
    at = Address(run, iteration, phase or None, step, kind, label or None)
    parts = {"run": at.run, "iteration": at.iteration, "phase": at.phase, "label": at.label}
    tests = " and ".join(f"{key} is not distinct from {literal(value)}" for key, value in parts.items())
    tests += f" and step = {at.step}" if at.step is not None else ""
    wide = "rollouts_table" if kind == "rollouts" else kind
    return RedirectResponse(url("sql", text=f"select *\nfrom {wide}\nwhere {tests}\nlimit 200"))


def _drawn(value: Any) -> Any:
    """A value as a figure needs it."""
    return value if isinstance(value, int | float | None) else str(value)[:NAME]


def _lines(view: View, text: str) -> Iterator[str]:
    with _answer(view, text, FILE_S) as reader:
        yield from export.csv_lines(reader)


def _answer(view: View, text: str, within_s: float) -> AbstractContextManager[pa.RecordBatchReader]:
    return readonly.answer(view.store.root, text, within_s, MEMORY_LIMIT)
