"""The candidates of an iteration as a funnel: what each filter dropped, and for which reason."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.viewer.view import Page, View
from tasks.reports.draw import by
from warehouse.schemas import Row

router = APIRouter()
ROWS = 100  # of a list, at a time


@router.get("/run/{run}/candidates", response_class=HTMLResponse)
def candidates(
    view: Page,
    run: str,
    iteration: int | None = None,
    phase: str | None = None,
    label: str | None = None,
    reason: str | None = None,
    offset: int = 0,
) -> HTMLResponse:
    counts = view.rows("selection_counts")
    groups = view.rows("group_counts")
    iterations = sorted({r["iteration"] for r in [*counts, *groups] if r["iteration"] is not None})
    chosen = iteration if iteration is not None or not iterations else iterations[-1]
    here = {key: value for key, value in _funnels(counts).items() if key[0] == chosen}
    asked: dict[str, Any] = {"phase": phase, "label": label, "reason": reason, "offset": offset}
    return view.page(
        "candidates",
        "Candidates",
        iterations=iterations,
        iteration=chosen,
        funnels=here,
        steps=view.rows("candidate_steps", iteration=chosen),
        groups={key: value for key, value in _funnels(groups).items() if key[0] == chosen},
        malformed=_unread(view, chosen),
        asked=asked,
        rows=view.rows("candidates", iteration=chosen, skipped=offset, **asked) if here else [],
        page_rows=ROWS,
    )


def _funnels(counts: list[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """What is left after each reason, by iteration, phase and label; the reason that dropped most comes first."""
    found = {}
    for key, rows in by(counts, "iteration", "phase", "label").items():
        total = left = sum(row["n"] for row in rows)
        steps = []
        for row in [r for r in rows if not r["kept"]]:
            left -= row["n"]
            steps.append({**row, "left": left, "share": row["n"] / total, "before": (left + row["n"]) / total})
        kept = sum(row["n"] for row in rows if row["kept"])
        found[key] = [{"reason": None, "n": total, "total": total}, *steps, {"reason": "", "n": kept, "total": total}]
    return found


def _unread(view: View, iteration: int | None) -> dict[str, list[Row]]:
    return by(view.rows("malformed", iteration=iteration), "role")
