"""Labels by people: the form, a run's labels, how gates and judges compare with them, and samples
to read."""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Body
from fastapi.responses import HTMLResponse

from flows.app.viewer import labels as labelling
from flows.app.viewer.view import LABELLER, Page, View, url
from warehouse.schemas import Row

router = APIRouter()
STRATA = ("outcome", "role", "template", "iteration", "phase")
SAMPLE = 20
Z = 1.96  # 95%
REMEMBERED_S = 365 * 24 * 3600  # how long a browser remembers the labeller's name
PAGES = {"task": "task", "rollout": "rollout", "verdict": "rollout"}


@router.post("/run/{run}/label", response_class=HTMLResponse)
def give_label(
    view: Page,
    run: str,
    body: Annotated[bytes, Body(media_type="application/x-www-form-urlencoded")],
) -> HTMLResponse:
    """Store a label; respond with the updated form, and a cookie with the labeller's name."""
    values = {key: values[-1] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
    kind = values.get("kind", "")
    id = values.get("subject", "")
    sample = values.get("sample", "")
    annotation = labelling.annotation(
        kind=kind,
        subject=id,
        labeller=values.get("labeller", ""),
        opinion=values.get("opinion", ""),
        note=values.get("note", ""),
        sample=sample,
    )
    try:
        _check_there_is(view, kind, id)
        labelling.label(view.store, run, annotation)
    except ValueError as fault:
        # keep in the form what the user typed
        typed = {"labeller": values.get("labeller", ""), "note": annotation["note"] or ""}
        form = {**subject(view, kind, id, sample), "problem": str(fault), "typed": typed}
        page = view.page("label", "Label", subject=form)
        page.status_code = 422
        return page
    view.lake.catalogue.forget()
    view.labeller = annotation["labeller"]
    page = view.page("label", "Label", subject=subject(view, kind, id, sample))
    page.set_cookie(LABELLER, quote(view.labeller), max_age=REMEMBERED_S, httponly=True)
    return page


def _check_there_is(view: View, kind: str, id: str) -> None:
    """Raise ValueError if the run does not have the thing to label."""
    statement = "task" if kind == "task" else "rollout"
    if kind in labelling.KINDS and view.first(statement, id=id) is None:
        raise ValueError(f"Not stored: {view.run} has no {statement} {id!r}.")


def subject(view: View, kind: str, id: str, sample: str = "") -> Row:
    """The values for the label form; `mine` is the earlier label by this browser's user, if any."""
    annotations = view.rows("annotations", kind=kind, id=id)
    by_me = (row for row in annotations if row["labeller"] == view.labeller)
    return {
        "kind": kind,
        "id": id,
        "annotations": annotations,
        "mine": next(by_me, None),
        "labeller": view.labeller,
        "sample": sample,
        "labels": labelling.LABELS,
        "problem": "",
        "typed": None,
    }


@router.get("/run/{run}/labels", response_class=HTMLResponse)
def labels(view: Page, run: str) -> HTMLResponse:
    """A run's labels, and how far gates, filters, rules and judges agree with them."""
    rows = view.rows("annotations", kind=None, id=None)
    return view.page(
        "labels",
        "Labels",
        rows=[{**row, "url": url(PAGES[row["kind"]], run, id=row["subject"])} for row in rows],
        agreement=[{**row, **_shares(row)} for row in view.rows("agreement")],
        strata=STRATA,
        samples=sorted({row["sample"] for row in rows if row["sample"]}),
    )


@router.get("/run/{run}/read", response_class=HTMLResponse)
def read(
    view: Page, run: str, stratum: str = "outcome", seed: int = 1, n: int = SAMPLE, role: str = ""
) -> HTMLResponse:
    """A random sample, always the same for one URL, and how much of it has been labelled."""
    if stratum not in STRATA:
        stratum = STRATA[0]
    n = max(1, min(n, 500))
    rows = view.rows("sample", stratum=stratum, seed=str(seed), n=n, role=role or None)
    sample = "-".join(filter(None, (stratum, role, str(n), str(seed))))
    return view.page(
        "read",
        "Read",
        rows=rows,
        sample=sample,
        num_read=sum(row["labellers"] is not None for row in rows),
        form={"stratum": stratum, "seed": seed, "n": n, "role": role},
        strata=STRATA,
        roles=[row["role"] for row in view.rows("roles")],
    )


def _shares(row: Row) -> Row:
    """Precision, recall and leaks, each with its 95% interval.

    Precision is the share of accepted items that are good, recall the share of good items that are
    accepted, and leaks the share of bad items that are accepted.
    """
    good = row["good_accepted"]
    accepted = row["good_accepted"] + row["bad_accepted"]
    return {
        "precision": interval(good, accepted),
        "recall": interval(good, good + row["good_refused"]),
        "leaks": interval(row["bad_accepted"], row["bad_accepted"] + row["bad_refused"]),
    }


def interval(num: int, of: int) -> Row | None:
    """A share and its 95% interval (Wilson 1927); None for no values.

    >>> interval(8, 10)
    {'share': 0.8, 'low': 0.49, 'high': 0.943, 'of': 10}
    """
    if not of:
        return None
    share = num / of
    middle = (share + Z**2 / (2 * of)) / (1 + Z**2 / of)
    half = Z * math.sqrt(share * (1 - share) / of + Z**2 / (4 * of**2)) / (1 + Z**2 / of)
    return {
        "share": share,
        "low": round(middle - half, 3),
        "high": round(middle + half, 3),
        "of": of,
    }
