"""Lists of rollouts, and groups of them side by side."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from flows.app.viewer.difference import difference
from flows.app.viewer.equations import FilledEquation, show
from flows.app.viewer.pages.run import version_of
from flows.app.viewer.view import Page, View
from tasks.reports.draw import by
from warehouse.lake import Lake
from warehouse.schemas import REWARDS, ROLLOUTS, UPDATES, Row
from warehouse.store import Store

router = APIRouter()
PAGE = 100
ROLES_KEPT = 8  # runs whose roles are cached
OUTCOMES = ("", "right", "wrong", "rewarded", "unscorable", "malformed", "error")
ORDERS = ("", "best", "worst", "longest")


@router.get("/run/{run}/rollouts", response_class=HTMLResponse)
def rollouts(  # noqa: PLR0913  the parameters of the page's address
    view: Page,
    request: Request,
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
    """Rollouts of a run, a page from `offset` on, in the order `order`.

    Every other parameter restricts the list if it is not empty. The outcome "right" selects answers
    with score 1, and "wrong" those with score 0 (for a rubric: all or none of its criteria are
    met). Without any parameter, the list shows the last iteration with an update, and the role that
    most of its advantages belong to.
    """
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
        "role": _roles(view.lake, run, version_of(view)),
    }
    if not request.query_params:
        form |= _last_trained(view)
    if form["iteration"] is not None:
        view.keep_iterations([form["iteration"]])
    rows = view.rows("rollouts", skipped=max(0, offset), **form)
    count = view.first("num_rollouts", **form)
    return view.page(
        "rollouts",
        "Rollouts",
        choices=choices,
        form=form,
        total=count["num"] if count else 0,
        rows=_shown(view, rows[:PAGE]),
        more=len(rows) > PAGE,
        offset=offset,
        page_rows=PAGE,
        outcomes=OUTCOMES,
        orders=ORDERS,
    )


def _last_trained(view: View) -> dict[str, Any]:
    """The iteration of the last update, and the role that most of its advantages belong to; empty
    if nothing was trained."""
    updates = [
        table.at
        for table in view.lake.tables(view.run)
        if table.schema is UPDATES and table.at.iteration is not None
    ]
    if not updates:
        return {}
    # the names of phases do not tell their order within an iteration
    last = max(updates, key=lambda at: (at.iteration or 0, at.step or 0))
    view.keep_steps([{"iteration": last.iteration, "phase": last.phase, "step": last.step}])
    trained = view.first("trained_role", iteration=last.iteration)
    return {"iteration": last.iteration, "role": trained["role"] if trained else None}


@lru_cache(maxsize=ROLES_KEPT)
def _roles(lake: Lake, run: str, version: str) -> list[str]:
    """The roles with rollouts in a run, cached until a table of the run changes, and with it
    `version`."""
    return [row["role"] for row in View(lake, run).rows("roles")]


@router.get("/run/{run}/group", response_class=HTMLResponse)
def group(view: Page, id: str, against: str | None = None) -> HTMLResponse:
    """The rollouts of a prompt, highest reward first, each shown as its differences from one of
    them: `against`, or the first."""
    prompt = view.row("prompt", f"prompt {id} in {view.run}", id=id)
    view.keep_near("prompts", prompt)
    rows = view.rows("group", id=id)
    ids = [row["rollout_id"] for row in rows]
    base = rows[0] if rows else None
    for row in rows:
        if row["rollout_id"] == against:
            base = row
    answers = fold(rows)
    rubric = []
    if prompt["task_id"]:
        rubric = view.rows("task_rubric", id=prompt["task_id"])
    stages = reward_stages(view, id)
    folders = outside_folders(view.store, view.run)
    return view.page(
        "group",
        "Group",
        prompt=prompt,
        num_rollouts=len(rows),
        answers=[
            {
                **answer,
                "changes": _changes(base, answer),
                "is_base": base is not None and base["rollout_id"] in answer["ids"],
                "equation": _equation(stages, answer, folders),
            }
            for answer in answers
        ],
        matrix=matrix(answers, rubric, view.rows("group_verdicts", ids=ids) if ids else []),
        largest=max((abs(row["advantage"]) for row in rows if row["advantage"]), default=None),
        base=base,
        about=view.first("task", id=prompt["task_id"]) if prompt["task_id"] else None,
        trained=view.rows("trained_on", ids=ids),
    )


def fold(rows: list[Row]) -> list[Row]:
    """The distinct answers of a group: rollouts with the same text and reward become one answer
    with all their `ids` and `samples`.

    >>> answer = {"reply": "yes", "reward": 1.0, "advantage": 0.5, "error": None}
    >>> rollouts = [{**answer, "rollout_id": i, "sample": n} for n, i in enumerate("ab")]
    >>> [(one["ids"], one["samples"]) for one in fold(rollouts)]
    [(['a', 'b'], [0, 1])]
    """
    folded: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        text = (row["reply"] or "").strip()
        key = (text or row["rollout_id"], row["reward"], row["advantage"], row["error"])
        answer = folded.setdefault(key, {**row, "ids": [], "samples": []})
        answer["ids"].append(row["rollout_id"])
        answer["samples"].append(row["sample"])
    return list(folded.values())


def matrix(answers: list[Row], rubric: list[Row], verdicts: list[Row]) -> list[Row]:
    """The verdicts as a matrix with one column per answer.

    The lines are first the criteria of the rubric in their order, then anything else that decided,
    such as votes, marks or a rule. A line has its `name`, its `text`, and one cell per answer,
    which holds the verdicts on all rollouts that were folded into the answer. `errs` counts
    verdicts that differ from the truth.
    """
    number_of = {row["criterion_id"]: row["position"] + 1 for row in rubric}
    text_of = {row["criterion_id"]: row["criterion"] for row in rubric}
    of_line = by(verdicts, "what", "criterion_id")
    places = {key: number_of.get(key[1], len(number_of) + 1) for key in of_line}
    lines = []
    for key in sorted(of_line, key=lambda key: (key[1] is None, places[key], key[0])):
        what, criterion_id = key
        of_rollout = by(of_line[key], "rollout_id")
        cells = [
            [verdict for rollout_id in answer["ids"] for verdict in of_rollout.get(rollout_id, [])]
            for answer in answers
        ]
        lines.append(
            {
                "anchor": f"verdicts-{len(lines)}",
                "name": what if criterion_id is None else str(number_of.get(criterion_id, "?")),
                "text": text_of.get(criterion_id),
                "cells": [_cell(cell) for cell in cells],
                "errs": sum(map(_errs, of_line[key])),
            }
        )
    return lines


def _cell(verdicts: list[Row]) -> Row:
    """One cell for several verdicts: how many accept, their mean, and how many are wrong."""
    known = [verdict["value"] for verdict in verdicts if verdict["value"] is not None]
    return {
        "verdicts": verdicts,
        "num": len(verdicts),
        "num_known": len(known),
        "num_accepted": sum(value == 1 for value in known),
        "is_mark": any(value not in (0, 1) for value in known),
        "mean": fmean(known) if known else None,
        "errs": sum(map(_errs, verdicts)),
    }


def _errs(verdict: Row) -> bool:
    """Whether a verdict differs from the truth; False where that is unknown."""
    return (
        verdict["oracle"] is not None
        and verdict["value"] is not None
        and verdict["oracle"] != verdict["value"]
    )


def reward_stages(view: View, group_id: str) -> list[dict[str, Any]]:
    """The parameters of the stages that rewarded a group, from their recipes."""
    places = view.rows("rewarded", id=group_id)
    parameters = []
    for table in view.lake.tables(view.run):
        at = table.at
        where = {"iteration": at.iteration, "phase": at.phase, "step": at.step, "label": at.label}
        if table.schema is REWARDS and where in places:
            whole = view.store.find(table.address)  # the catalogue's recipes lack parameters
            if whole is not None:
                parameters.append(whole.recipe.get("params", {}))
    return parameters


def outside_folders(store: Store, run: str) -> list[Path]:
    """The folder of the run's method, if it is outside this project."""
    folder = (store.kept(run, "request.json") or {}).get("folder")
    return [Path(folder)] if folder else []


def _equation(stages: list[dict[str, Any]], row: Row, folders: list[Path]) -> FilledEquation | None:
    """The equation of a reward, from the first stage that declares one with this value."""
    if row["reward"] is None or row["components"] is None:
        return None
    for params in stages:
        shown_equation = show(params, row["components"], row["reward"], folders)
        if shown_equation is not None:
            return shown_equation
    return None


def _shown(view: View, rows: list[Row]) -> list[Row]:
    """The rows with their replies and rewards, which are looked up only in the tables of their
    steps."""
    if not rows:
        return rows
    view.keep_steps(rows)
    ids = [row["rollout_id"] for row in rows]
    more = {row["rollout_id"]: row for row in view.rows("rollouts_shown", ids=ids)}
    return [{**row, **more[row["rollout_id"]]} for row in rows]


def _changes(base: Row | None, answer: Row) -> Markup | None:
    """The differences of an answer's reply from that of `base`; None for `base` itself."""
    if base is None or base["rollout_id"] in answer["ids"]:
        return None
    return difference(base["reply"] or "", answer["reply"] or "")


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
