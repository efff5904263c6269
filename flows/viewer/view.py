"""Build one page: run statements on the store, remember them to show below the page, and fill the template."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import jinja2
from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse

from flows.viewer.text import CUT, FILTERS
from warehouse.address import Address
from warehouse.lake import Lake
from warehouse.schemas import ANNOTATIONS, DOCUMENTS, Row
from warehouse.store import Store
from warehouse.table import Table

HERE = Path(__file__).parent
MOST_NEAR = 30  # tables: with more, views are not restricted
PARAMETER = re.compile(r"^\s*--.*$|\$(\w+)", re.MULTILINE)  # or a comment, whose $names are no parameters


def url(kind: str = "", run: str = "", /, **given: Any) -> str:
    """The address of a page, within a run if one is named.

    >>> url("task", "mine", id="a/b", reason=None)
    '/run/mine/task?id=a%2Fb'
    """
    path = f"/run/{quote(run, safe='')}/{kind}".rstrip("/") if run else f"/{kind}"
    asked = urlencode({key: value for key, value in given.items() if value is not None and value != ""})
    return f"{path}?{asked}" if asked else path


TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= FILTERS
TEMPLATES.globals |= {"url": url}


@dataclass(frozen=True)
class Statement:
    """A statement that was run for a page."""

    name: str
    sql: str
    num_rows: int
    seconds: float


@dataclass
class View:
    """A page about one run, or about all runs if `run` is empty."""

    lake: Lake
    run: str = ""
    statements: list[Statement] = field(default_factory=list)
    near: tuple[Table, ...] | None = None  # tables that statements read; None: all of the run

    @property
    def store(self) -> Store:
        return self.lake.store

    def knows(self, run: str) -> bool:
        return run in self.lake.catalogue.runs()

    def rows(self, name: str, run: str | None = None, **given: Any) -> list[Row]:
        """Rows of `sql/<name>.sql`, which gets the parameters that it names; `$run` and `$characters` (how much of a
        text to read) are always available."""
        sql = (HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8")
        values = {"run": run or self.run, "characters": CUT + 1, **given}
        wanted = {key: values[key] for key in PARAMETER.findall(sql) if key}
        answer = self.lake.query(self.run if run is None else run, sql, wanted, self.near if run is None else None)
        self.statements.append(Statement(name, with_values(sql, wanted), len(answer.rows), answer.seconds))
        return answer.rows

    def keep_near(self, table: str, row: Row) -> None:
        """Restrict further statements to tables that may hold rows related to a row of `table`, and to labels, which
        are made from no table."""
        self.keep_near_all([{**row, "name": table}])

    def keep_near_all(self, places: Sequence[Row]) -> None:
        """Restrict further statements in the same way for several tables: `name`, iteration, phase, step, label. With
        too many of them, nothing is restricted."""
        if len(places) > MOST_NEAR:
            return
        phases, tables = {(place["iteration"], place["phase"]) for place in places}, self.lake.tables(self.run)
        given = (t for t in tables if t.schema is DOCUMENTS and (t.at.iteration, t.at.phase) in phases)
        near = {t.address: t for t in tables if t.schema is ANNOTATIONS}
        near |= {t.address: t for t in given}  # beside the tasks; neither was made from the other
        for place in places:
            at = Address(self.run, place["iteration"], place["phase"], place["step"], place["name"], place["label"])
            near |= {table.address: table for table in self.lake.catalogue.related(self.run, str(at))}
        self.near = tuple(near.values())

    def keep_iterations(self, numbers: Collection[int | None]) -> None:
        """Restrict further statements to the tables of these iterations, and to those outside any."""
        kept = {None, *numbers}
        self.near = tuple(table for table in self.lake.tables(self.run) if table.at.iteration in kept)

    def keep_steps(self, rows: Sequence[Row]) -> None:
        """Restrict further statements to the tables of the rows' steps, and to those outside any iteration: a rollout's
        reply and reward are stored where it was sampled."""
        kept = {(row["iteration"], row["phase"], row["step"]) for row in rows}
        tables = ((table, table.at) for table in self.lake.tables(self.run))
        self.near = tuple(t for t, at in tables if at.iteration is None or (at.iteration, at.phase, at.step) in kept)

    def row(self, name: str, what: str, **given: Any) -> Row:
        """The one row of a statement. Raises HTTPException 404 if there is none."""
        rows = self.rows(name, **given)
        if not rows:
            raise HTTPException(404, f"there is no {what}")
        return rows[0]

    def page(self, template: str, title: str, **values: Any) -> HTMLResponse:
        given = {"run": self.run, "title": title, "statements": self.statements, "kind": template, **values}
        return HTMLResponse(TEMPLATES.get_template(f"{template}.html.jinja").render(given))


def with_values(sql: str, values: dict[str, Any]) -> str:
    """A statement with its parameters inserted, so that it can be run elsewhere.

    >>> with_values("select $id", {"id": "it's"})
    "select 'it''s'"
    """
    return PARAMETER.sub(lambda found: literal(values[found[1]]) if found[1] else found[0], sql).strip()


def literal(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"


def open_view(request: Request) -> View:
    """The page of a request. Raises HTTPException 404 for an unknown run."""
    view = View(request.app.state.lake, request.path_params.get("run", ""))
    if view.run and not view.knows(view.run):
        raise HTTPException(404, f"there is no run {view.run}")
    return view


Page = Annotated[View, Depends(open_view)]
