"""Audits of gates: of the tasks that were let through, which should not have been?

    chosen = keep(pool, WINDOW, tasks=tasks, scores=scores)
    watch(pool, gate_leaks, tasks=tasks, chosen=chosen, limits=cfg.monitor, policy=policy.id, benchmark=GATES)

An oracle says it where one exists, and a second, stricter judge elsewhere. A strict gate is what keeps self-play stable
under every reward (arXiv 2605.22217).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from string import ascii_uppercase

from tasks.clusters import members_of
from tasks.course import Chosen
from tasks.monitor import OF, Measured
from tasks.prompt import Row
from tasks.rollouts.tokens import cut_tokens
from warehouse.schemas import Document, Gate, Label, Membership, Task

GATES = "gate monitor"  # a benchmark in `evaluations`
TRUTH, AUDITOR = "truth", "auditor"  # who says it
Sound = Callable[[Task], bool | None]  # whether a task is worth training on; None where that is not known


class Passed(Chosen):
    """Of a selection, a group or an entry of a pool."""

    task_id: str


def let_through(
    tasks: Iterable[Task], chosen: Iterable[Passed], labels: Iterable[Label] = (), passed: Collection[str] = ()
) -> Iterator[Task]:
    """The tasks that a filter kept, or did not need for one of the reasons `passed`; where they have `labels`, with
    these as references."""
    ids = {row["task_id"] for row in chosen if row["kept"] or row["reason"] in passed}
    label_of = {row["task_id"]: row["answer"] for row in labels}
    for task in tasks:
        if task["task_id"] in ids:
            yield {**task, "reference": label_of.get(task["task_id"], task["reference"])}


def gate_leaks(
    tasks: list[Task],
    chosen: list[Passed],
    labels: Iterable[Label] = (),
    audits: Iterable[Gate] = (),
    *,
    sound: Sound | None = None,
    passed: Collection[str] = (),
) -> Measured:
    """1 for a task that was let through and should not have been: by `sound`, of those that it knows, and by a second
    judge's `audits`, of those that it could be heard on."""
    audit_of = {row["task_id"]: row["passed"] for row in audits}
    for task in let_through(tasks, chosen, labels, passed):
        truth, audited = sound(task) if sound else None, audit_of.get(task["task_id"])
        if truth is not None:
            yield f"gate_leak{OF}{TRUTH}", float(not truth)
        if audited is not None:
            yield f"gate_leak{OF}{AUDITOR}", float(not audited)


def show_passed(
    tasks: list[Task],
    chosen: list[Passed],
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
    """`count` of the tasks that were let through, drawn by `seed`, each with its options, its reference and the
    documents behind it: those of its evidence, of its cluster, or its source, together at most `limit` tokens."""
    text_of = {row["document_id"]: row["text"] for row in documents}
    members = members_of(memberships)
    cluster_of = {document_id: cluster for cluster, some in members.items() for document_id in some}
    found = list(let_through(tasks, chosen, labels, passed))
    for task in random.Random(seed).sample(found, min(count, len(found))):
        source = task["document_id"] or ""
        ids = members[cluster_of[source]] if source in cluster_of else task["evidence"] or [source]
        shown = cut_tokens("\n\n".join(text_of[i] for i in ids if i in text_of), model, limit)
        offered = zip(ascii_uppercase, task["options"] or [], strict=False)
        options = [{"letter": letter, "text": text} for letter, text in offered]
        about = {"task": task["text"], "options": options, "reference": task["reference"] or "", "documents": shown}
        yield {"task_id": task["task_id"], "task_type": task["task_type"], **about}
