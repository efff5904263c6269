"""Updates: all of a run, and one with its metrics and its batch."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse

from flows.viewer.view import Page

router = APIRouter()
MISMATCH = ("sampler_kl", "mean_ratio", "max_ratio", "sampler_reverse_kl", "sampler_logprob_gap")


@router.get("/run/{run}/updates", response_class=HTMLResponse)
def updates(view: Page) -> HTMLResponse:
    return view.page("updates", "Updates", rows=view.rows("updates"))


@router.get("/run/{run}/update", response_class=HTMLResponse)
def update(
    view: Page, run: str, iteration: int | None = None, phase: str | None = None, step: int | None = None
) -> HTMLResponse:
    place = {"iteration": iteration, "phase": phase, "step": step}
    steps = view.rows("update_rows", **place)
    if not steps:
        raise HTTPException(404, f"there is no update in {run} at iteration {iteration}, {phase}, step {step}")
    view.keep_near("updates", steps[0])
    names = list(dict.fromkeys(name for row in steps for name in row["metrics"]))
    beside = [
        {key: row[key] for key in place}
        for row in view.rows("updates")
        if row["role"] == steps[0]["role"] and row["optimizer_step"] == steps[0]["optimizer_step"]
    ]
    at = beside.index(place) if place in beside else -1
    return view.page(
        "update",
        "Update",
        place=place,
        steps=steps,
        names=[n for n in names if n not in MISMATCH] + [n for n in names if n in MISMATCH],
        mismatch=MISMATCH,
        batch=view.rows("update_batch", **place),
        previous=beside[at - 1] if at > 0 else None,
        next=beside[at + 1] if 0 <= at < len(beside) - 1 else None,
    )
