"""Compare answers with references by rule."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.processes.comparison_child import serve
from tasks.processes.comparisons import Compare, Outcome, Workers
from tasks.scorers.accepted import with_reference
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import MATCHES, Row


@stage(MATCHES, tools=("num_workers",), code=(serve,))
def match(
    answers: Tables,
    tasks: Tables,
    *,
    labels: Tables = (),
    compare: Compare,
    time_limit_s: float = 10.0,
    num_workers: int = 1,
) -> Rows:
    """Yield one row per answer, in order: whether `compare(task, answer)` finds it equal to the
    reference.

    With `labels` (from `tasks.vote`) a task's label is its only right answer; an answer to a task
    without a label takes the label's reason.

    `compare` takes a row of `tasks` and the answer's text; it is a module-level function or a
    partial of one. If it raises ValueError (`Malformed` is one), `matched` is null with that
    reason; likewise if it runs for more than `time_limit_s`, runs out of memory or crashes, after
    which its worker is replaced. After `comparisons.PATIENCE` timeouts the limit drops to
    `HASTE_S`. An answer without text has its own reason. Equal answers to one task are compared
    once. Any other exception is a bug in `compare` and raises RuntimeError.
    """
    rows = rows_of(answers)
    references = _labels_as_references(rows_of(tasks), rows_of(labels)) if labels else None
    if references is None:
        references = _References({task["task_id"]: task for task in rows_of(tasks)}, {})
    task_of = references.task_of
    comparable = (
        row
        for row in rows
        if row["answer"] is not None and row["task_id"] not in references.why_missing
    )
    pairs = list(dict.fromkeys((row["task_id"], row["answer"]) for row in comparable))
    with Workers(compare, time_limit_s, min(num_workers, len(pairs))) as workers:
        outcomes = workers.map(lambda pair: workers.compare(task_of[pair[0]], pair[1]), pairs)
        outcome_of = dict(zip(pairs, outcomes, strict=True))
    for row in rows:
        outcome = outcome_of.get((row["task_id"], row["answer"]))
        if outcome is None:
            why_missing = references.why_missing.get(row["task_id"])
            reason = row["malformed"] or why_missing or "no answer"
            outcome = Outcome(matched=None, reason=reason, seconds=0.0)
        yield {"rollout_id": row["rollout_id"], "task_id": row["task_id"], **vars(outcome)}


@dataclass(frozen=True)
class _References:
    """What answers are compared with."""

    task_of: dict[str, Row]  # by task id
    why_missing: dict[str, str]  # by task id: why the task has no label to compare with


def _labels_as_references(tasks: list[Row], labels: list[Row]) -> _References:
    """The tasks with their labels in place of all answers known to be right."""
    label_of = {row["task_id"]: row for row in labels}
    references = _References({}, {})
    for task in tasks:
        label = label_of.get(task["task_id"], {"answer": None, "reason": "no label"})
        references.task_of[task["task_id"]] = with_reference(task, label["answer"])
        if label["answer"] is None:
            references.why_missing[task["task_id"]] = label["reason"]
    return references
