"""The candidates of an iteration as a funnel: what each filter dropped, and for which reason."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.viewer.view import Page, View
from tasks.reports.draw import by
from warehouse.schemas import Row

router = APIRouter()
LISTS = {"selections": "candidates", "groups": "candidates_of_groups", "gates": "candidates_of_gates"}  # statements
ROWS = 100  # of a list, on one page


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
    iterations = sorted({t.at.iteration for t in view.lake.tables(run) if t.at.iteration is not None})
    chosen = iteration if iteration is not None or not iterations else iterations[-1]
    view.keep_iterations([chosen])
    counts = {what: _funnels(view.rows(f"{what}_counts", iteration=chosen)) for what in ("selection", "group")}
    of = of if of in LISTS else "groups" if counts["group"] and not counts["selection"] else "selections"
    asked: dict[str, Any] = {"phase": phase, "label": label, "reason": reason, "gate": gate, "of": of, "offset": offset}
    return view.page(
        "candidates",
        "Candidates",
        iterations=iterations,
        iteration=chosen,
        funnels=counts["selection"],
        groups=counts["group"],
        steps=view.rows("candidate_steps", iteration=chosen),
        gates=view.rows("candidate_gates", iteration=chosen),
        malformed=_unread(view, chosen),
        asked=asked,
        rows=view.rows(LISTS[of], iteration=chosen, skipped=max(0, offset), **asked),
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


def _unread(view: View, iteration: int | None) -> list[Row]:
    """Malformed replies by phase and reason, as counted when their tables were made."""
    found: dict[tuple[str | None, str], list[tuple[str, int]]] = defaultdict(list)
    for table in view.lake.tables(view.run):
        if table.at.iteration == iteration and table.schema.parsed:
            for reason, n in table.recipe.get("counts", {}).items():
                found[table.at.phase, reason].append((table.at.name, n))
    rows = [
        {
            "phase": phase,
            "reason": reason,
            "n": sum(n for _, n in tables),
            "tables": sorted({name for name, _ in tables}),
        }
        for (phase, reason), tables in found.items()
    ]
    return sorted(rows, key=lambda row: (row["phase"] or "", -row["n"]))
