"""Compare answers with references by rule."""

from __future__ import annotations

import contextlib

from tasks.processes.comparison_child import serve
from tasks.processes.comparisons import Compare, Outcome, Workers
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import MATCHES, Row


@stage(MATCHES, tools=("num_workers", "workers"), code=(serve,))
def match(
    answers: Tables,
    tasks: Tables,
    *,
    labels: Tables = (),
    compare: Compare,
    time_limit_s: float = 10.0,
    num_workers: int = 1,
    workers: Workers | None = None,
) -> Rows:
    """Yield one row for every answer, in their order: does `compare(task, answer)` find it equal to the reference?

    With `labels` (`tasks.vote`) the reference is the task's label; an answer to a task without one takes the label's
    reason.

    `compare` takes a row of `tasks` and the answer's text; it is a module-level function or a partial of one. If it
    raises ValueError (`Malformed` is one), the row has a null with that reason; likewise if it runs for more than
    `time_limit_s`, exhausts the memory or crashes, and its worker is replaced. After `comparisons.PATIENCE` timeouts
    the limit is `BRIEF_S`. An answer without text has its own reason. Equal answers to one task are compared once.
    Any other exception is a fault of `compare` and raises RuntimeError. `workers` are processes shared with
    other stages; without them the stage starts up to `num_workers` of its own.
    """
    rows, (task_of, missing) = rows_of(answers), _references(rows_of(tasks), rows_of(labels) if labels else None)
    given = (row for row in rows if row["answer"] is not None and row["task_id"] not in missing)
    pairs = list(dict.fromkeys((row["task_id"], row["answer"]) for row in given))
    own = Workers(compare, time_limit_s, min(num_workers, len(pairs)))
    with contextlib.nullcontext(workers) if workers else own as processes:
        outcomes = processes.map(lambda pair: processes.compare(task_of[pair[0]], pair[1]), pairs)
        outcome_of = dict(zip(pairs, outcomes, strict=True))
    for row in rows:
        reason = row["malformed"] or missing.get(row["task_id"]) or "no answer"
        outcome = outcome_of.get((row["task_id"], row["answer"])) or Outcome(None, reason, 0.0)
        yield {"rollout_id": row["rollout_id"], "task_id": row["task_id"], **vars(outcome)}


def _references(tasks: list[Row], labels: list[Row] | None) -> tuple[dict[str, Row], dict[str, str]]:
    """The tasks by id, with their labels as references if `labels` are given; and the reasons of tasks without one."""
    if labels is None:
        return {task["task_id"]: task for task in tasks}, {}
    label_of = {row["task_id"]: row for row in labels}
    labelled, missing = {}, {}
    for task in tasks:
        row = label_of.get(task["task_id"], {"answer": None, "reason": "no label"})
        labelled[task["task_id"]] = {**task, "reference": row["answer"]}
        if row["answer"] is None:
            missing[task["task_id"]] = row["reason"]
    return labelled, missing
