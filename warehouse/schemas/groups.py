"""Tables of what a step leaves to the next: tasks remembered, and rollouts chosen to be trained on."""

from __future__ import annotations

from warehouse.schemas.columns import BOOL, INT, NUMBERS, STRING, STRINGS, Column, define

MEMORIES = define(
    "memories",
    "a task remembered for its cluster and type",
    "cluster task_type place",
    Column("cluster", INT, "the cluster"),
    Column("task_type", STRING, "type of the task"),
    Column("place", INT, "0-based, the oldest first"),
    Column("task_id", STRING, "the task"),
    Column("text", STRING, "its text"),
    Column("reference", STRING, "the answer that it was written with"),
    Column("document_ids", STRINGS, "the documents that it was written from"),
)

GROUPS = define(
    "groups",
    "a group of rollouts that an update may train on: taken, or the first reason why not",
    "group_id",
    Column("group_id", STRING, "the prompt whose rollouts they are"),
    Column("task_id", STRING, "the task that they wrote, answered or judged answers to"),
    Column("kept", BOOL, "whether it is trained on"),
    Column("reason", STRING, "first failing test", "kept"),
    Column("measures", NUMBERS, "what the decision was made on"),
    Column("bounds", STRING, "the bounds used, as JSON"),
)
