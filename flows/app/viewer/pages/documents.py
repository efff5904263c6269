"""Documents: a run's documents, one document with everything made from it, and a task or document
across iterations and runs."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException
from fastapi.responses import HTMLResponse

from flows.app.viewer.view import ALL_RUNS, Page
from tasks.reports.draw import by

router = APIRouter()
PAGE = 100


@router.get("/run/{run}/documents", response_class=HTMLResponse)
def documents(view: Page, run: str, text: str = "", offset: int = 0) -> HTMLResponse:
    """Documents of a run, a page from `offset` on. With `text`, only those whose title contains it
    or whose id it is."""
    rows = view.rows("documents", text=text, skipped=max(0, offset))
    return view.page(
        "documents",
        "Documents",
        rows=rows[:PAGE],
        more=len(rows) > PAGE,
        text=text,
        offset=offset,
        page_rows=PAGE,
    )


@router.get("/run/{run}/document", response_class=HTMLResponse)
def document(view: Page, id: str) -> HTMLResponse:
    """A document with its tasks, the conversations about it, and which of these were trained on.

    Raises HTTPException (404) for an id that no document has.
    """
    row = view.first("document", id=id)
    view.keep_near_all(view.rows("document_places", id=id))
    tasks = view.rows("document_tasks", id=id)
    rollouts = view.rows("document_rollouts", id=id)
    if row is None and not tasks and not rollouts:
        raise HTTPException(404, f"there is no document {id} in {view.run}")
    ids = dict.fromkeys(r["rollout_id"] for r in [*rollouts, *tasks])
    return view.page(
        "document",
        "Document",
        id=id,
        document=row,
        tasks=tasks,
        roles={key: len(rows) for key, rows in by(rollouts, "iteration", "phase", "role").items()},
        trained=view.rows("trained_on", ids=[i for i in ids if i is not None]),
    )


@router.get("/across", response_class=HTMLResponse)
def across(
    view: Page, run: str = "", task: str | None = None, document: str | None = None
) -> HTMLResponse:
    """The same task (by id or text) or document (by id) in all iterations of all runs."""
    if document is not None:
        return view.page(
            "across",
            "Elsewhere",
            text=None,
            what=document,
            documents=view.rows("across_document", run=ALL_RUNS, id=document),
        )
    text = None
    if run and task is not None:
        same = view.first("task", run=run, id=task) if view.knows(run) else None
        text = same["text"] if same else None
    rows = view.rows("across_tasks", run=ALL_RUNS, id=task, text=text)
    scores = view.rows("across_scores", run=ALL_RUNS, ids=[row["task_id"] for row in rows])
    return view.page(
        "across",
        "Elsewhere",
        text=text,
        what=task,
        documents=None,
        rows=rows,
        scores=by(scores, "run", "iteration", "task_id"),
    )
