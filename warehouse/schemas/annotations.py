"""The table of people's labels on rollouts, tasks and verdicts."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import define


class Annotation(TypedDict):
    """A row of `annotations`: what one person says of one thing."""

    kind: Annotated[str, "rollout, task or verdict"]
    subject: Annotated[str, "the rollout, the task, or the rollout that gave the verdict"]
    labeller: Annotated[str, "who says it"]
    opinion: Annotated[
        str | None,
        "good, bad, hack, leak or unsure; of a verdict: good is right, bad is wrong",
        "a note",
    ]
    note: Annotated[str | None, "in words", "none"]
    labelled_at: Annotated[float, "s since the epoch"]
    sample: Annotated[str | None, "the random sample that it was read in", "none"]


ANNOTATIONS = define(
    "annotations",
    Annotation,
    grain="what one person says of one thing",
    key="kind subject labeller",
)
