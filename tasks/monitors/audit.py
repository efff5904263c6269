"""Audit a gate: which of the tasks that it let through should it have rejected?

    chosen = keep(pool, WINDOW, tasks=tasks, rewards=rewards)
    watch(
        pool,
        gate_leaks,
        tasks=tasks,
        chosen=chosen,
        limits=cfg.monitor,
        policy=policy.id,
        benchmark=GATES,
    )

An oracle decides if there is one, otherwise a second, stricter judge does. A strict gate keeps
self-play stable under every reward (arXiv 2605.22217).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from string import ascii_uppercase

from tasks.clusters import members_of
from tasks.monitors.drift import Choice
from tasks.monitors.monitor import OF, Measured
from tasks.prompt import Row
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import Document, Gate, Label, Membership, Task

GATES = "gate monitor"  # a benchmark in `evaluations`
# suffixes that say who decides
TRUTH = "truth"
AUDITOR = "auditor"
Sound = Callable[[Task], bool | None]  # whether a task is worth training on; None if unknown


class TaskChoice(Choice):
    """Columns of a selection, a group or a pool entry."""

    task_id: str


def let_through(
    tasks: Iterable[Task],
    chosen: Iterable[TaskChoice],
    labels: Iterable[Label] = (),
    passed: Collection[str] = (),
) -> Iterator[Task]:
    """The tasks that a filter let through: it kept them, or dropped them for a reason in `passed`,
    that is, only because they were not needed. A label replaces the task's reference."""
    ids = {row["task_id"] for row in chosen if row["kept"] or row["reason"] in passed}
    label_of = {row["task_id"]: row["answer"] for row in labels}
    for task in tasks:
        if task["task_id"] in ids:
            yield {**task, "reference": label_of.get(task["task_id"], task["reference"])}


def gate_leaks(
    tasks: list[Task],
    chosen: list[TaskChoice],
    labels: Iterable[Label] = (),
    audits: Iterable[Gate] = (),
    *,
    sound: Sound | None = None,
    passed: Collection[str] = (),
) -> Measured:
    """Yield 1 for a task that should not have been let through, else 0: according to `sound`, for
    tasks that it knows, and to a second judge's `audits`, for tasks whose `passed` is known."""
    audit_of = {row["task_id"]: row["passed"] for row in audits}
    for task in let_through(tasks, chosen, labels, passed):
        truth = sound(task) if sound else None
        audited = audit_of.get(task["task_id"])
        if truth is not None:
            yield f"gate_leak{OF}{TRUTH}", float(not truth)
        if audited is not None:
            yield f"gate_leak{OF}{AUDITOR}", float(not audited)


def show_passed(
    tasks: list[Task],
    chosen: list[TaskChoice],
    labels: Iterable[Label] = (),
    documents: Iterable[Document] = (),
    memberships: Iterable[Membership] = (),
    *,
    count: int,
    seed: int,
    passed: Collection[str] = (),
    model: str,
    limit: int,
) -> Iterator[Row]:
    """Draw `count` of the tasks that were let through, by `seed`. Each comes with its options, its
    reference and its documents (its cluster's, else its evidence, else its source), cut to `limit`
    tokens in total."""
    text_of = {row["document_id"]: row["text"] for row in documents}
    members = members_of(memberships)
    cluster_of = {document_id: cluster for cluster, some in members.items() for document_id in some}
    candidates = list(let_through(tasks, chosen, labels, passed))
    for task in random.Random(seed).sample(candidates, min(count, len(candidates))):
        source = task["document_id"] or ""
        ids = members[cluster_of[source]] if source in cluster_of else task["evidence"] or [source]
        text = cut_tokens("\n\n".join(text_of[i] for i in ids if i in text_of), model, limit)
        offered = zip(ascii_uppercase, task["options"] or [], strict=False)
        options = [{"letter": letter, "text": text} for letter, text in offered]
        values = {
            "task": task["text"],
            "options": options,
            "reference": task["reference"] or "",
            "documents": text,
        }
        yield {"task_id": task["task_id"], "task_type": task["task_type"], **values}
