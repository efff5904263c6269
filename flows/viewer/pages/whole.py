"""A full text, of which pages show only the beginning: plain text, as stored."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import Response

from flows.viewer.view import Page
from warehouse.schemas import TABLES

router = APIRouter()


@router.get("/run/{run}/whole")
def whole(view: Page, table: str, id: str, part: str) -> Response:
    """`part` leads to the text: `reply`, or `turns.0.text`."""
    schema = TABLES.get(table)
    name, *path = part.split(".")
    if schema is None or name not in schema.arrow.names:
        raise HTTPException(404, f"no table {table} with a column {name}")
    source = "rollouts_table" if table == "rollouts" else table
    statement = f"select {name} as value from {source} where run = $run and {schema.key[0]} = $id limit 1"
    rows = view.lake.query(view.run, statement, {"run": view.run, "id": id}).rows
    value: Any = rows[0]["value"] if rows else None
    try:
        for step in path:
            value = value[int(step)] if step.isdecimal() else value[step]
    except (KeyError, IndexError, TypeError):
        value = None
    if not isinstance(value, str):
        raise HTTPException(404, f"{table} {id} has no text {part}")
    return Response(value.encode("utf-8", "replace"), media_type="text/plain; charset=utf-8")
