"""Tables of what is known of many tasks together: labels by majority, and novelty within a batch."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import define


class Label(TypedDict):
    task_id: Annotated[str, "the task"]
    answer: Annotated[str | None, "the majority answer, as the earliest of the winning class wrote it", "see reason"]
    rollout_id: Annotated[str | None, "that earliest answer", "there is no label"]
    share: Annotated[float | None, "num_agreeing / num_readable", "no answer was readable"]
    num_agreeing: Annotated[int, "answers in the winning class"]
    num_readable: Annotated[int, "answers that could be read: the votes"]
    num_answers: Annotated[int, "answers sampled, readable or not; engine failures are not counted"]
    num_classes: Annotated[int, "classes of equal answers"]
    num_failed_comparisons: Annotated[int, "comparisons that timed out, crashed or could not tell: taken as unequal"]
    tied: Annotated[bool, "whether another class is as large as the winning one, which was sampled first"]
    reason: Annotated[str | None, "why there is no label", "there is one"]


LABELS = define("labels", Label, grain="a task and the answer that most of its answers agree on", key="task_id")


class Novelty(TypedDict):
    task_id: Annotated[str, "the task"]
    cluster: Annotated[int | None, "0-based, in the order of their first members", "the task has no text"]
    cluster_size: Annotated[int | None, "tasks of that cluster", "the task has no text"]
    batch_size: Annotated[int, "tasks of the batch, with text or not; engine failures are not counted"]
    share: Annotated[float | None, "cluster_size / batch_size", "the task has no text"]
    nearest: Annotated[str | None, "the earlier task most similar to it", "none was given, or the task has no text"]
    similarity: Annotated[float | None, "similarity to that task, at most 1", "there is none"]


NOVELTIES = define("novelties", Novelty, grain="a task and its cluster of similar tasks in one batch", key="task_id")
