"""One conversation: its messages, turn by turn, how likely each token was, and its outcome."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from flows.viewer.pages.labels import subject
from flows.viewer.tokens import pieces_of
from flows.viewer.view import Page
from warehouse.schemas import Row

router = APIRouter()


@router.get("/run/{run}/rollout", response_class=HTMLResponse)
def rollout(view: Page, id: str, heat: bool = False, sample: str = "") -> HTMLResponse:
    row = view.row("rollout", f"rollout {id} in {view.run}", id=id)
    view.keep_near("rollouts", row)
    prompt = next(iter(view.rows("prompt", id=row["prompt_id"])), None)
    place = {key: row[key] for key in ("iteration", "phase", "step", "label")}
    about = prompt["task_id"] if prompt else None
    decided = view.rows("decided", id=id)
    return view.page(
        "rollout",
        "Conversation",
        rollout=row,
        prompt=prompt,
        decided=decided,
        subject=subject(view, "verdict" if decided else "rollout", id, sample),
        turns=[{**turn, "number": i, "thoughts": thoughts(turn["text"])} for i, turn in enumerate(row["turns"] or [])],
        heat=pieces_of(view.store, row) if heat else None,
        shows_heat=heat,
        readings=view.rows("readings", id=id),
        reward=next(iter(view.rows("reward", id=id)), None),
        judged_by=view.rows("judged_by", id=id),
        trained=view.rows("trained_on", ids=[id]),
        wrote=next(iter(view.rows("task", id=id)), None),
        about=next(iter(view.rows("task", id=about)), None) if about else None,
        beside=next(iter(view.rows("neighbours", id=id, **place)), None),
    )


def thoughts(text: str | None) -> list[Row]:
    """A reply in parts: thoughts between think tags, which are folded, and the rest.

    >>> [(part["thought"], part["text"]) for part in thoughts("<think>hm</think>yes")]
    [(True, 'hm'), (False, 'yes')]
    >>> [(part["thought"], part["text"]) for part in thoughts("hm</think>yes")]
    [(True, 'hm'), (False, 'yes')]
    """
    parts, rest = [], text or ""
    while "</think>" in rest:
        before, _, rest = rest.partition("</think>")
        said, _, thought = before.rpartition("<think>") if "<think>" in before else ("", "", before)
        parts += [{"thought": False, "text": said}, {"thought": True, "text": thought}]
    said, opened, thought = rest.partition("<think>")
    parts.append({"thought": False, "text": said})
    if opened:
        parts.append({"thought": True, "text": thought})
    return [part for part in parts if part["text"].strip()] or [{"thought": False, "text": text or ""}]
