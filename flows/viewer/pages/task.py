"""One task: its document, prompt, rubric, the answers side by side with their rewards and verdicts, and its fate."""

from __future__ import annotations

import json

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.viewer.evidence import marked
from flows.viewer.pages.labels import subject
from flows.viewer.view import Page, View
from tasks.reports.draw import by
from warehouse.schemas import Row

router = APIRouter()
SIDE_BY_SIDE = 16  # answers; the others are a click away


@router.get("/run/{run}/task", response_class=HTMLResponse)
def task(view: Page, id: str) -> HTMLResponse:
    row = view.row("task", f"task {id} in {view.run}", id=id)
    view.keep_near("tasks", row)
    answers = view.rows("task_answers", id=id)
    verdicts = view.rows("task_verdicts", id=id)
    writer = row["rollout_id"]
    trained = view.rows("trained_on", ids=[*([writer] if writer else []), *(a["rollout_id"] for a in answers)])
    rubric = sorted(view.rows("task_rubric", id=id), key=lambda r: r["position"])
    return view.page(
        "task",
        "Task",
        task=row,
        subject=subject(view, "task", id),
        documents=_documents(view, row, rubric),
        prompt=next(iter(view.rows("prompt", id=row["prompt_id"])), None) if row["prompt_id"] else None,
        prompts=view.rows("task_prompts", id=id),
        rubric=rubric,
        groups=by([{**a, **_met(a, verdicts)} for a in answers], "iteration", "phase", "step", "prompt_id"),
        verdicts=by(verdicts, "rollout_id", "criterion_id"),
        marks=[v for v in verdicts if v["rollout_id"] is None],
        canaries=[v for v in verdicts if v["expected"] is not None],
        gates=view.rows("task_gates", id=id),
        fate=[{**f, "details": json.loads(f["details"] or "{}")} for f in view.rows("task_fate", id=id)],
        reward=next(iter(view.rows("reward", id=writer)), None) if writer else None,
        trained=trained,
        num_side=SIDE_BY_SIDE,
    )


def _met(answer: Row, verdicts: list[Row]) -> Row:
    """How many criteria an answer was judged by, and how many it meets."""
    mine = [v["verdict"] for v in verdicts if v["rollout_id"] == answer["rollout_id"] and v["what"] == "criterion"]
    return {"num_verdicts": len(mine), "num_met": sum(v or 0 for v in mine)}


def _documents(view: View, task: Row, rubric: list[Row]) -> list[Row]:
    """The source document first; what the words of the task or of its rubric share with it is marked."""
    ids = [i for i in dict.fromkeys([task["document_id"], *(task["evidence"] or [])]) if i is not None]
    if not ids:
        return []
    found = {row["document_id"]: row for row in view.rows("task_documents", ids=ids)}
    words = [task["reference"], task["text"], *(task["options"] or []), *(c["criterion"] for c in rubric)]
    return [
        {**found[i], "is_source": i == task["document_id"], "marked": marked(found[i]["text"], words)}
        if i in found
        else {"document_id": i, "title": None, "is_source": i == task["document_id"], "marked": None}
        for i in ids
    ]
