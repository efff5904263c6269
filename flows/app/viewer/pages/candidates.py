"""The candidates of an iteration as a funnel: what each filter dropped, and why."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.app.viewer.view import Page, View
from tasks.reports.draw import by
from tasks.reports.reasons import in_order_of_tests
from warehouse.schemas import GROUPS, SELECTIONS, Row, Schema

router = APIRouter()
# the kinds of list, and their statements
LISTS = {
    "selections": "candidates",
    "groups": "candidates_of_groups",
    "gates": "candidates_of_gates",
}
ROWS = 100  # rows of a list on one page


@router.get("/run/{run}/candidates", response_class=HTMLResponse)
def candidates(
    view: Page,
    run: str,
    iteration: int | None = None,
    phase: str | None = None,
    label: str | None = None,
    reason: str | None = None,
    gate: str | None = None,
    of: str = "",
    offset: int = 0,
) -> HTMLResponse:
    """What the filters of an iteration (by default the last) dropped for each reason, and a list of
    candidates.

    `of` is the kind of list, one of `LISTS`; `phase`, `label`, `reason` and `gate` restrict it.
    """
    numbers = {table.at.iteration for table in view.lake.tables(run)}
    iterations = sorted(number for number in numbers if number is not None)
    if iteration is None and iterations:
        iteration = iterations[-1]
    view.keep_iterations([iteration])
    selected = view.rows("selection_counts", iteration=iteration)
    funnels = _funnels(view, selected, SELECTIONS)
    groups = _funnels(view, view.rows("group_counts", iteration=iteration), GROUPS)
    if of not in LISTS:
        of = "groups" if groups and not funnels else "selections"
    chosen: dict[str, Any] = {"phase": phase, "label": label, "reason": reason, "gate": gate}
    return view.page(
        "candidates",
        "Candidates",
        iterations=iterations,
        iteration=iteration,
        funnels=funnels,
        groups=groups,
        steps=view.rows("candidate_steps", iteration=iteration),
        gates=view.rows("candidate_gates", iteration=iteration),
        malformed=_malformed(view, iteration),
        chosen={**chosen, "of": of, "offset": offset},
        rows=view.rows(LISTS[of], iteration=iteration, skipped=max(0, offset), **chosen),
        page_rows=ROWS,
    )


def _funnels(view: View, counts: list[Row], schema: Schema) -> dict[tuple[Any, ...], list[Row]]:
    """The candidates left after each reason, in the order of the tests, by iteration, phase and
    label.

    10 candidates, of which 6 are too easy and 4 are kept, become three steps: all 10; the 6 dropped
    (a share of 0.6), which leaves 4; the 4 kept.
    """
    return {
        key: _funnel(rows, _params(view, schema, *key))
        for key, rows in by(counts, "iteration", "phase", "label").items()
    }


def _params(
    view: View, schema: Schema, iteration: int | None, phase: str | None, label: str | None
) -> dict[str, Any]:
    """The parameters of the first selection at a place, including the query that gives the
    reasons."""
    for table in view.lake.tables(view.run):
        at = table.at
        if table.schema is schema and (at.iteration, at.phase, at.label) == (
            iteration,
            phase,
            label,
        ):
            # the catalogue's recipes lack their parameters
            whole = view.store.find(table.address)
            return whole.recipe.get("params", {}) if whole else {}
    return {}


def _funnel(rows: list[Row], params: dict[str, Any]) -> list[Row]:
    total = sum(row["n"] for row in rows)
    num_kept = sum(row["n"] for row in rows if row["kept"])
    steps: list[Row] = [{"reason": None, "n": total, "total": total}]
    left = total
    dropped = {row["reason"]: row for row in rows if not row["kept"]}
    for reason in in_order_of_tests(dropped, params):
        row = dropped[reason]
        share = row["n"] / total
        before = left / total
        left -= row["n"]
        steps.append({**row, "left": left, "share": share, "before": before})
    return [*steps, {"reason": "", "n": num_kept, "total": total}]


def _malformed(view: View, iteration: int | None) -> list[Row]:
    """Counts of malformed replies by phase and reason, from when their tables were made."""
    counted: dict[tuple[str | None, str], list[tuple[str, int]]] = defaultdict(list)
    for table in view.lake.tables(view.run):
        if table.at.iteration == iteration and table.schema.parsed:
            for reason, n in table.recipe.get("counts", {}).items():
                counted[table.at.phase, reason].append((table.at.name, n))
    rows = [
        {
            "phase": phase,
            "reason": reason,
            "n": sum(n for _, n in tables),
            "tables": sorted({name for name, _ in tables}),
        }
        for (phase, reason), tables in counted.items()
    ]
    return sorted(rows, key=lambda row: (row["phase"] or "", -row["n"]))
