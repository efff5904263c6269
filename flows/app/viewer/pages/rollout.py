"""One conversation: its messages, turn by turn, how likely each token was, and its outcome."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.app.viewer.pages.labels import subject
from flows.app.viewer.tokens import pieces_of
from flows.app.viewer.view import Page
from warehouse.schemas import Row

router = APIRouter()


@router.get("/run/{run}/rollout", response_class=HTMLResponse)
def rollout(view: Page, id: str, heat: bool = False, sample: str = "") -> HTMLResponse:
    """A conversation, with what was parsed from it, its reward and its use in training.

    `heat`: show the log-probability of each token. `sample`: the sample from which it was opened.
    Raises HTTPException (404) if there is no such rollout.
    """
    row = view.row("rollout", f"rollout {id} in {view.run}", id=id)
    view.keep_near("rollouts", row)
    prompt = view.first("prompt", id=row["prompt_id"])
    task = None
    if prompt is not None and prompt["task_id"]:
        task = view.first("task", id=prompt["task_id"])
    decided = view.rows("decided", id=id)
    return view.page(
        "rollout",
        "Conversation",
        rollout=row,
        prompt=prompt,
        decided=decided,
        subject=subject(view, "verdict" if decided else "rollout", id, sample),
        turns=[
            {**turn, "number": i, "thoughts": thoughts(turn["text"])}
            for i, turn in enumerate(row["turns"] or [])
        ],
        heat=pieces_of(view.store, row) if heat else None,
        shows_heat=heat,
        readings=view.rows("readings", id=id),
        reward=view.first("reward", id=id),
        scores=view.rows("score", id=id),
        judged_by=view.rows("judged_by", id=id),
        trained=view.rows("trained_on", ids=[id]),
        wrote=view.first("task", id=id),
        task=task,
        beside=view.first(
            "neighbours",
            id=id,
            iteration=row["iteration"],
            phase=row["phase"],
            step=row["step"],
            label=row["label"],
        ),
    )


def thoughts(text: str | None) -> list[Row]:
    """A reply split into thoughts, which are inside think tags and shown folded, and other text.

    >>> [(part["thought"], part["text"]) for part in thoughts("<think>hm</think>yes")]
    [(True, 'hm'), (False, 'yes')]
    >>> [(part["thought"], part["text"]) for part in thoughts("hm</think>yes")]
    [(True, 'hm'), (False, 'yes')]
    """
    parts = []
    rest = text or ""
    while "</think>" in rest:
        before, _, rest = rest.partition("</think>")
        # without an opening tag, all of `before` is the thought
        reply, _, thought = before.rpartition("<think>")
        parts += [{"thought": False, "text": reply}, {"thought": True, "text": thought}]
    reply, _, thought = rest.partition("<think>")
    parts += [{"thought": False, "text": reply}, {"thought": True, "text": thought}]
    parts = [part for part in parts if part["text"].strip()]
    return parts or [{"thought": False, "text": text or ""}]
