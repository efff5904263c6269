"""One task: its document, prompt and rubric, its answers side by side with their rewards and
verdicts, and what became of it."""

from __future__ import annotations

import json

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.app.viewer.evidence import marked
from flows.app.viewer.pages.labels import subject
from flows.app.viewer.view import Page, View
from tasks.reports.draw import by
from warehouse.schemas import Row

router = APIRouter()
SIDE_BY_SIDE = 16  # answers shown side by side; the others are a click away


@router.get("/run/{run}/task", response_class=HTMLResponse)
def task(view: Page, id: str) -> HTMLResponse:
    """A task with its documents, rubric, answers and verdicts, and the prompt in reply to which it
    was written.

    Raises HTTPException (404) if there is no such task.
    """
    row = view.row("task", f"task {id} in {view.run}", id=id)
    view.keep_near("tasks", row)
    answers = view.rows("task_answers", id=id)
    verdicts = view.rows("task_verdicts", id=id)
    rubric = sorted(view.rows("task_rubric", id=id), key=lambda r: r["position"])
    prompt = None
    if row["prompt_id"]:
        prompt = view.first("prompt", id=row["prompt_id"])
    reward = None
    trained_ids = [answer["rollout_id"] for answer in answers]
    if writer := row["rollout_id"]:
        reward = view.first("reward", id=writer)
        trained_ids = [writer, *trained_ids]
    counted = [{**answer, **_met(answer, verdicts)} for answer in answers]
    return view.page(
        "task",
        "Task",
        task=row,
        subject=subject(view, "task", id),
        documents=_documents(view, row, rubric),
        prompt=prompt,
        prompts=view.rows("task_prompts", id=id),
        rubric=rubric,
        groups=by(counted, "iteration", "phase", "step", "prompt_id"),
        verdicts=by(verdicts, "rollout_id", "criterion_id"),
        marks=[v for v in verdicts if v["rollout_id"] is None],
        canaries=[v for v in verdicts if v["expected"] is not None],
        gates=view.rows("task_gates", id=id),
        fate=[
            {**event, "details": json.loads(event["details"] or "{}")}
            for event in view.rows("task_fate", id=id)
        ],
        reward=reward,
        trained=view.rows("trained_on", ids=trained_ids),
        num_side=SIDE_BY_SIDE,
    )


def _met(answer: Row, verdicts: list[Row]) -> Row:
    """The number of criteria that an answer was judged by, and the number that it meets."""
    mine = [
        v["verdict"]
        for v in verdicts
        if v["rollout_id"] == answer["rollout_id"] and v["what"] == "criterion"
    ]
    return {"num_verdicts": len(mine), "num_met": sum(v or 0 for v in mine)}


def _documents(view: View, task: Row, rubric: list[Row]) -> list[Row]:
    """The task's documents, the source document first; words that they share with the task or its
    rubric are marked."""
    named = dict.fromkeys([task["document_id"], *(task["evidence"] or [])])
    ids = [document_id for document_id in named if document_id is not None]
    if not ids:
        return []
    stored = {row["document_id"]: row for row in view.rows("task_documents", ids=ids)}
    words = [
        task["reference"],
        task["text"],
        *(task["options"] or []),
        *(criterion["criterion"] for criterion in rubric),
    ]
    documents = []
    for document_id in ids:
        document = {"document_id": document_id, "title": None, "marked": None}
        if row := stored.get(document_id):
            document = {**row, "marked": marked(row["text"], words)}
        documents.append({**document, "is_source": document_id == task["document_id"]})
    return documents
