"""The judge on trial: how far its verdicts agree with what is known, and where they disagree.

This is the computation of `selfplay judge`.
"""

from __future__ import annotations

from functools import lru_cache

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, PlainTextResponse

from flows.app.viewer.pages.run import version_of
from flows.app.viewer.view import Page
from tasks.judges.trial import PARTS, Trial, card, hold_trial
from warehouse.lake import Lake

router = APIRouter()
TRIALS_KEPT = 8
DEFAULT = "place"  # an iteration and a phase


@router.get("/run/{run}/judge", response_class=HTMLResponse)
def judge(view: Page, run: str, by: str = DEFAULT, iteration: int | None = None) -> HTMLResponse:
    """How far a judge's verdicts agree with what is known, up to an iteration if one is given,
    grouped `by` one of `PARTS`."""
    if by not in PARTS:
        by = DEFAULT
    return view.page(
        "judge",
        "Judge",
        trial=_trial(view.lake, run, iteration, version_of(view), (by,)),
        by=by,
        parts=PARTS,
    )


@router.get("/run/{run}/judge.md", response_class=PlainTextResponse)
def judge_card(view: Page, run: str, iteration: int | None = None) -> PlainTextResponse:
    """The judge card, as `selfplay judge RUN --export` writes it."""
    text = card(_trial(view.lake, run, iteration, version_of(view), PARTS))
    return PlainTextResponse(text, media_type="text/markdown")


@lru_cache(maxsize=TRIALS_KEPT)
def _trial(
    lake: Lake, run: str, iteration: int | None, version: str, parts: tuple[str, ...]
) -> Trial:
    """The trial of a run's judge, cached until a table of the run changes, and with it
    `version`."""
    return hold_trial(lake, run, iteration=iteration, parts=parts)
