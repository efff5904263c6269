"""Lists of rollouts, and groups of them side by side."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from flows.app.viewer.difference import difference
from flows.app.viewer.view import Page, View
from warehouse.schemas import ROLLOUTS, Row

router = APIRouter()
PAGE = 100
OUTCOMES = ("", "rewarded", "unscorable", "malformed", "error")
ORDERS = ("", "best", "worst", "longest")


@router.get("/run/{run}/rollouts", response_class=HTMLResponse)
def rollouts(  # noqa: PLR0913  the parameters of the page's address
    view: Page,
    run: str,
    iteration: str = "",
    phase: str = "",
    step: str = "",
    role: str = "",
    outcome: str = "",
    order: str = "",
    policy: str = "",
    reason: str = "",
    offset: int = 0,
) -> HTMLResponse:
    form: dict[str, Any] = {
        "iteration": _number(iteration),
        "phase": phase or None,
        "step": _number(step),
        "role": role or None,
        "policy": policy or None,
        "outcome": outcome,
        "reason": reason or None,
        "sorting": order,
    }
    places = [table.at for table in view.lake.tables(run) if table.schema is ROLLOUTS]
    choices = {
        "iteration": sorted({at.iteration for at in places if at.iteration is not None}),
        "phase": sorted({at.phase for at in places if at.phase}),
        "role": [row["role"] for row in view.rows("roles")],
    }
    if form["iteration"] is not None:
        view.keep_iterations([form["iteration"]])
    rows = view.rows("rollouts", skipped=max(0, offset), **form)
    return view.page(
        "rollouts",
        "Rollouts",
        choices=choices,
        form=form,
        rows=_shown(view, rows[:PAGE]),
        more=len(rows) > PAGE,
        offset=offset,
        page_rows=PAGE,
        outcomes=OUTCOMES,
        orders=ORDERS,
    )


@router.get("/run/{run}/group", response_class=HTMLResponse)
def group(view: Page, id: str, against: str | None = None) -> HTMLResponse:
    """The rollouts of a prompt, best reward first, each as its differences from one of them."""
    prompt = view.row("prompt", f"prompt {id} in {view.run}", id=id)
    view.keep_near("prompts", prompt)
    rows = view.rows("group", id=id)
    base = rows[0] if rows else None
    for row in rows:
        if row["rollout_id"] == against:
            base = row
    return view.page(
        "group",
        "Group",
        prompt=prompt,
        rows=[{**row, "changes": _changes(base, row)} for row in rows],
        base=base,
        about=view.first("task", id=prompt["task_id"]) if prompt["task_id"] else None,
        trained=view.rows("trained_on", ids=[row["rollout_id"] for row in rows]),
    )


def _shown(view: View, rows: list[Row]) -> list[Row]:
    """The rows with replies and rewards, looked up only in the tables of their steps."""
    if not rows:
        return rows
    view.keep_steps(rows)
    ids = [row["rollout_id"] for row in rows]
    more = {row["rollout_id"]: row for row in view.rows("rollouts_shown", ids=ids)}
    return [{**row, **more[row["rollout_id"]]} for row in rows]


def _changes(base: Row | None, row: Row) -> Markup | None:
    """The reply of `row` as its differences from that of `base`; None for `base` itself."""
    if base is None or row is base:
        return None
    return difference(base["reply"] or "", row["reply"] or "")


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
