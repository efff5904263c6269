"""A full text, of which pages show only the beginning: plain text, as stored."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from flows.app.viewer.pages.sql import stored_table
from flows.app.viewer.view import Page
from warehouse.schemas import TABLES

router = APIRouter()


@router.get("/run/{run}/whole")
def whole(view: Page, table: str, id: str, part: str) -> Response:
    """A full text from a row of a table; `part` is the path to it, such as `reply` or
    `turns.0.text`.

    Raises HTTPException (404) for an unknown table or column, or a row without this text.
    """
    schema = TABLES.get(table)
    name, *path = part.split(".")
    if schema is None or name not in schema.arrow.names:
        raise HTTPException(404, f"no table {table} with a column {name}")
    source = stored_table(table)
    statement = (
        f"select {name} as value from {source} where run = $run and {schema.key[0]} = $id limit 1"
    )
    rows = view.lake.query(view.run, statement, {"run": view.run, "id": id}).rows
    text = _inside(rows[0]["value"], path) if rows else None
    if not isinstance(text, str):
        raise HTTPException(404, f"{table} {id} has no text {part}")
    return Response(text.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")


def _inside(value: Any, path: list[str]) -> Any:
    """The value at a path of keys and indices; None if there is none.

    >>> _inside([{"text": "yes"}], ["0", "text"]), _inside([], ["0", "text"])
    ('yes', None)
    """
    try:
        for step in path:
            value = value[int(step)] if step.isdecimal() else value[step]
    except (KeyError, IndexError, TypeError):
        return None
    return value
