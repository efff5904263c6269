"""Updates: a run's updates, and one update with its metrics and its batch."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse

from flows.app.viewer.view import Page, View
from warehouse.schemas import Row

router = APIRouter()
MISMATCH = ("sampler_kl", "mean_ratio", "max_ratio", "sampler_reverse_kl", "sampler_logprob_gap")


@router.get("/run/{run}/updates", response_class=HTMLResponse)
def updates(view: Page) -> HTMLResponse:
    """All updates of a run."""
    return view.page("updates", "Updates", rows=view.shared_rows("updates"))


@router.get("/run/{run}/update", response_class=HTMLResponse)
def update(
    view: Page,
    run: str,
    iteration: int | None = None,
    phase: str | None = None,
    step: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> HTMLResponse:
    """One update with its metrics, a histogram of its advantages, its batch, and links to the
    updates before and after it.

    Only rows of the batch with an advantage between `low` and `high` are shown. Raises
    HTTPException (404) if there is no such update.
    """
    steps = view.rows("update_rows", iteration=iteration, phase=phase, step=step)
    if not steps:
        raise HTTPException(
            404, f"there is no update in {run} at iteration {iteration}, {phase}, step {step}"
        )
    view.keep_near("updates", steps[0])
    names = list(dict.fromkeys(name for row in steps for name in row["metrics"]))
    place = {"iteration": iteration, "phase": phase, "step": step}
    previous, following = _beside(view, steps[0], place)
    return view.page(
        "update",
        "Update",
        place=place,
        steps=steps,
        names=[n for n in names if n not in MISMATCH] + [n for n in names if n in MISMATCH],
        mismatch=MISMATCH,
        batch=view.rows(
            "update_batch", iteration=iteration, phase=phase, step=step, low=low, high=high
        ),
        bins=view.rows("update_advantages", iteration=iteration, phase=phase, step=step),
        bounds=(low, high),
        previous=previous,
        next=following,
    )


def _beside(view: View, update: Row, place: Row) -> tuple[Row | None, Row | None]:
    """The places of the previous and the next update of the same role; None where there is none."""
    places = [
        {key: row[key] for key in place}
        for row in view.shared_rows("updates")
        if row["role"] == update["role"] and row["optimizer_step"] == update["optimizer_step"]
    ]
    if place not in places:
        return None, None
    at = places.index(place)
    around = [None, *places, None]
    return around[at], around[at + 2]
