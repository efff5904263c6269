"""Tables over many tasks: majority labels, novelty in a batch, pools that outlive iterations."""

from __future__ import annotations

from typing import Annotated, TypedDict

from warehouse.schemas.columns import define


class Label(TypedDict):
    """A row of `labels`: a task and the answer that most of its answers agree on."""

    task_id: Annotated[str, "the task"]
    answer: Annotated[
        str | None,
        "the majority answer, as the earliest of the winning class wrote it",
        "see reason",
    ]
    rollout_id: Annotated[str | None, "that earliest answer", "there is no label"]
    share: Annotated[float | None, "num_agreeing / num_readable", "no answer was readable"]
    num_agreeing: Annotated[int, "answers in the winning class"]
    num_readable: Annotated[int, "answers that could be read: the votes"]
    num_answers: Annotated[int, "answers sampled, readable or not; engine failures are not counted"]
    num_classes: Annotated[int, "classes of equal answers"]
    num_failed_comparisons: Annotated[
        int, "comparisons that timed out, crashed or could not tell: taken as unequal"
    ]
    tied: Annotated[
        bool, "whether another class is as large as the winning one, which was sampled first"
    ]
    reason: Annotated[str | None, "why there is no label", "there is one"]


LABELS = define(
    "labels", Label, grain="a task and the answer that most of its answers agree on", key="task_id"
)


class Novelty(TypedDict):
    """A row of `novelties`: a task and its cluster of similar tasks in one batch."""

    task_id: Annotated[str, "the task"]
    cluster: Annotated[
        int | None, "0-based, in the order of their first members", "the task has no text"
    ]
    cluster_size: Annotated[int | None, "tasks of that cluster", "the task has no text"]
    batch_size: Annotated[
        int, "tasks of the batch, with text or not; engine failures are not counted"
    ]
    share: Annotated[float | None, "cluster_size / batch_size", "the task has no text"]
    nearest: Annotated[
        str | None, "the earlier task most similar to it", "none was given, or the task has no text"
    ]
    similarity: Annotated[float | None, "similarity to that task, at most 1", "there is none"]


NOVELTIES = define(
    "novelties",
    Novelty,
    grain="a task and its cluster of similar tasks in one batch",
    key="task_id",
)


class Entry(TypedDict):
    """What the rows of `pools` and `draws` share."""

    entry_id: Annotated[
        str, "identity: the task, or the rollout that answered it where entries are answers"
    ]
    task_id: Annotated[str, "the task"]
    rollout_id: Annotated[
        str | None, "the rollout that wrote the task, or the answer", "it was given"
    ]
    text: Annotated[str, "the task's text"]
    answer: Annotated[str | None, "an answer to the task", "entries are tasks"]
    reference: Annotated[str | None, "the answer that the task was written with", "it has none"]
    answer_type: Annotated[str | None, "what kind of answer the reference is", "not stated"]
    options: Annotated[list[str] | None, "choices offered, in order", "it offers none"]
    task_type: Annotated[str | None, "type of the task", "none in particular"]
    difficulty: Annotated[int | None, "how many steps a full answer takes", "not known"]
    document_id: Annotated[str | None, "its source document", "it has none"]
    evidence: Annotated[
        list[str] | None, "ids of the source document and all retrieved ones", "it has no document"
    ]
    score: Annotated[float | None, "as last measured", "never measured"]
    num_uses: Annotated[int, "how often it was drawn"]
    last_used: Annotated[str | None, "address of the draws that it was last among", "never drawn"]
    origin: Annotated[str, "address of the table that it came from"]


class PoolEntry(Entry):
    """A row of `pools`, the oldest first: a task or an answer that stays in a pool or leaves it."""

    kept: Annotated[bool, "whether it is in the pool from now on"]
    reason: Annotated[
        str | None, "why it leaves the pool here, or does not enter it", "it is in the pool"
    ]


POOLS = define(
    "pools",
    PoolEntry,
    grain=(
        "a task, or an answer to one, that is in a pool for later steps, or leaves it here; the"
        " oldest first"
    ),
    key="entry_id",
)


class Draw(Entry):
    """A row of `draws`: an entry of a pool, drawn to be used once."""

    draw_id: Annotated[str, "identity"]


DRAWS = define("draws", Draw, grain="an entry of a pool, drawn to be used once", key="draw_id")
