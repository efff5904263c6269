"""Build one page: run statements on the store, record them so the page can show them below, and
fill in the template."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlencode

import jinja2
from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse

from flows.app.viewer.behind import Behind
from flows.app.viewer.text import CUT, FILTERS
from tasks.reports.data import Source, described, tables_until
from tasks.reports.statement import parameters_of, shared_statement, with_values
from warehouse.address import Address
from warehouse.lake import Lake
from warehouse.schemas import ANNOTATIONS, DOCUMENTS, Row
from warehouse.store import Store
from warehouse.table import Table

HERE = Path(__file__).parent
ALL_RUNS = ""
LABELLER = "selfplay-labeller"  # the cookie with the name of the browser's labeller
MOST_NEAR = 30  # with more tables than this, views are not restricted


def url(kind: str = "", run: str = "", /, **parameters: Any) -> str:
    """The URL of a page, within a run if one is named.

    >>> url("task", "mine", id="a/b", reason=None)
    '/run/mine/task?id=a%2Fb'
    """
    path = f"/run/{quote(run, safe='')}/{kind}".rstrip("/") if run else f"/{kind}"
    named = {key: value for key, value in parameters.items() if value is not None and value != ""}
    if not named:
        return path
    return f"{path}?{urlencode(named)}"


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
    run: str = ALL_RUNS
    statements: list[Statement] = field(default_factory=list)
    near: tuple[Table, ...] | None = None  # tables that statements read; None: all of the run
    beside: str = ""  # the run that a page about all runs was opened from
    labeller: str = ""  # the name under which this browser gave its last label

    @property
    def store(self) -> Store:
        return self.lake.store

    def knows(self, run: str) -> bool:
        """Whether the store has a run of this name."""
        return run in self.lake.catalogue.runs()

    def rows(self, name: str, run: str | None = None, **parameters: Any) -> list[Row]:
        """The rows of `sql/<name>.sql`. It gets the parameters that it names; `$run` and
        `$characters` (how much of a text to read) are always available."""
        sql = (HERE / "sql" / f"{name}.sql").read_text(encoding="utf-8")
        return self._rows_of(name, sql, run, parameters)

    def shared_rows(self, name: str, run: str | None = None, **parameters: Any) -> list[Row]:
        """The rows of a statement shared with reports, over all iterations of a run: by default the
        page's run, or all runs if `run` is empty."""
        return self._rows_of(name, shared_statement(name), run, {"iteration": None, **parameters})

    def first(self, name: str, **parameters: Any) -> Row | None:
        """The first row of a statement, or None."""
        return next(iter(self.rows(name, **parameters)), None)

    def row(self, name: str, what: str, **parameters: Any) -> Row:
        """The first row of a statement. If there is none, raises HTTPException (404), which says
        that there is no `what`."""
        row = self.first(name, **parameters)
        if row is None:
            raise HTTPException(404, f"there is no {what}")
        return row

    def source(self, iteration: int) -> Source:
        """The run up to an iteration, in the form that a report reads."""
        all_tables = self.lake.tables(self.run)
        tables = tables_until(all_tables, iteration)
        # the lake caches its views of all tables, so do not restrict them without need
        near = tables if len(tables) < len(all_tables) else None

        def ask(name: str, sql: str, parameters: dict[str, Any]) -> list[Row]:
            return self._ask(name, sql, parameters, self.run, near)

        return Source(self.run, iteration, described(tables), ask)

    def _rows_of(
        self, name: str, sql: str, run: str | None, parameters: dict[str, Any]
    ) -> list[Row]:
        """The rows of a statement over a run, over all runs if `run` is empty, or by default over
        the tables that this page is about."""
        values = {"run": run or self.run, "characters": CUT + 1, **parameters}
        near = self.near
        if run is None:
            run = self.run
        else:
            near = None
        return self._ask(name, sql, parameters_of(sql, values), run, near)

    def _ask(
        self,
        name: str,
        sql: str,
        parameters: dict[str, Any],
        run: str,
        near: tuple[Table, ...] | None,
    ) -> list[Row]:
        answer = self.lake.query(run, sql, parameters, near)
        self.statements.append(
            Statement(name, with_values(sql, parameters), len(answer.rows), answer.seconds)
        )
        return answer.rows

    def keep_near(self, table: str, row: Row) -> None:
        """Restrict later statements to tables that may hold rows related to a row of `table`, and
        to labels, which are not made from any table."""
        self.keep_near_all([{**row, "name": table}])

    def keep_near_all(self, places: Sequence[Row]) -> None:
        """Restrict later statements as `keep_near` does, but for several tables, each given by
        `name`, iteration, phase, step and label.

        If there are more than `MOST_NEAR`, nothing is restricted.
        """
        if len(places) > MOST_NEAR:
            return
        phases = {(place["iteration"], place["phase"]) for place in places}
        tables = self.lake.tables(self.run)
        near = {table.address: table for table in tables if table.schema is ANNOTATIONS}
        for table in tables:
            # documents written together with tasks: neither table was made from the other
            if table.schema is DOCUMENTS and (table.at.iteration, table.at.phase) in phases:
                near[table.address] = table
        for place in places:
            at = Address(
                run=self.run,
                iteration=place["iteration"],
                phase=place["phase"],
                step=place["step"],
                table=place["name"],
                label=place["label"],
            )
            for table in self.lake.catalogue.related(self.run, str(at)):
                near[table.address] = table
        self.near = tuple(near.values())

    def keep_iterations(self, numbers: Collection[int | None]) -> None:
        """Restrict later statements to the tables of these iterations and those outside any
        iteration."""
        kept = {None, *numbers}
        self.near = tuple(
            table for table in self.lake.tables(self.run) if table.at.iteration in kept
        )

    def keep_steps(self, rows: Sequence[Row]) -> None:
        """Restrict later statements to the tables of the rows' steps and those outside any
        iteration: a rollout's reply and reward are stored where it was sampled."""
        kept = {(row["iteration"], row["phase"], row["step"]) for row in rows}
        near = []
        for table in self.lake.tables(self.run):
            at = table.at
            if at.iteration is None or (at.iteration, at.phase, at.step) in kept:
                near.append(table)
        self.near = tuple(near)

    def page(self, template: str, title: str, **values: Any) -> HTMLResponse:
        """Render `template` with these values, and the statements that were run for the page below
        it."""
        variables = {
            "run": self.run,
            "home": self.run or self.beside,
            "title": title,
            "statements": self.statements,
            "kind": template,
            **values,
        }
        return HTMLResponse(TEMPLATES.get_template(f"{template}.html.jinja").render(variables))


def open_view(request: Request) -> View:
    """The view for a request. Raises HTTPException (404) for an unknown run."""
    view = View(
        request.app.state.lake,
        request.path_params.get("run", ""),
        labeller=unquote(request.cookies.get(LABELLER, "")),
    )
    if view.run and not view.knows(view.run):
        raise HTTPException(404, f"there is no run {view.run}: it was removed or renamed")
    beside = request.query_params.get("home", "")
    if beside and view.knows(beside):
        view.beside = beside
    return view


def behind(request: Request) -> Behind:
    """The threads that compute the slow parts of pages."""
    return request.app.state.behind


Page = Annotated[View, Depends(open_view)]
SlowParts = Annotated[Behind, Depends(behind)]
