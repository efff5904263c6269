"""Tables of what a step passes to the next: remembered tasks, and rollouts chosen for training."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import define


class Memory(TypedDict):
    """A row of `memories`: a task remembered for its cluster and type."""

    cluster: Annotated[int, "the cluster"]
    task_type: Annotated[str, "type of the task"]
    place: Annotated[int, "0-based, the oldest first"]
    task_id: Annotated[str, "the task"]
    text: Annotated[str, "its text"]
    reference: Annotated[str, "the answer that it was written with"]
    document_ids: Annotated[list[str], "the documents that it was written from"]


MEMORIES = define(
    "memories",
    Memory,
    grain="a task remembered for its cluster and type",
    key="cluster task_type place",
)


class Group(TypedDict):
    """A row of `groups`: a group of rollouts that an update may train on, kept or with the first
    failing test as the reason why not."""

    group_id: Annotated[str, "the prompt whose rollouts they are"]
    task_id: Annotated[str, "the task that they wrote, answered or judged answers to"]
    kept: Annotated[bool, "whether it is trained on"]
    reason: Annotated[str | None, "first failing test", "kept"]
    measures: Annotated[dict[str, float], "what the decision was made on"]
    bounds: Annotated[str, "the bounds used, as JSON"]


GROUPS = define(
    "groups",
    Group,
    grain="a group of rollouts that an update may train on: taken, or the first reason why not",
    key="group_id",
)
