"""The watch on what cannot be seen from rewards: a grader that errs or is played, and a pool that runs dry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from flows.scope.roles import criteria_of
from flows.scope.steps import Pool, Scope, grade
from tasks.evaluate import Measure
from tasks.judge import canary_id
from tasks.monitor import JUDGE, canary_errors, check_pool, judge_gap
from warehouse.schemas import Criterion, Row, Task
from warehouse.store import Place, Table

UNTRUSTED = (
    'Look at the verdicts (selfplay sql "from judgments"), choose another models.grader, or raise the limit: '
    "monitor.max_canary_error, monitor.max_judge_minus_oracle."
)
SHORT = (
    "Raise pool.max_batches, widen pool.window, or set pool.short_pool=fewer_steps; selections say why the others were "
    "not kept."
)


def watch_canaries(scope: Scope, place: Place, pool: Pool) -> None:
    """Grade answers of known verdict made from the pool's rubrics. Raises Alarm where too many are judged wrongly."""
    count = scope.run.cfg.judge.canaries
    if count and any(table.num_rows for table in pool.rubrics):
        role = replace(scope.roles.grader, name="canary", about=partial(canaries, count=count))
        judged = grade(scope, place, tasks=pool.tasks, rubrics=pool.rubrics, answers=(), role=role)
        _watch_judge(scope, place, canary_errors, judged)


def watch_gap(scope: Scope, place: Place, judgments: Table) -> None:
    """Compare verdicts on training answers with the oracle's. Raises Alarm where their means lie too far apart."""
    if scope.oracle and judgments.num_rows:
        _watch_judge(scope, place, judge_gap, judgments)


def _watch_judge(scope: Scope, place: Place, measure: Measure, judgments: Table) -> None:
    grader = scope.run.model("grader").id
    scope.run.watch(place, measure, policy=grader, benchmark=JUDGE, judgments=judgments, way_out=UNTRUSTED)


def check_size(scope: Scope, pool: Pool, target: int) -> None:
    """Raises Alarm where a short pool is an error; otherwise says how short it is."""
    check_pool(pool.selections, target, short_pool=scope.run.cfg.pool.short_pool, way_out=SHORT)


def canaries(rubrics: list[Criterion], tasks: list[Task], *, count: int) -> Iterator[Row]:
    """Answers of known verdict, made of the criteria themselves: all stated must pass, one left out must fail it."""
    text = {t["task_id"]: t["text"] for t in tasks}
    made = 0
    for task_id, criteria in criteria_of(rubrics).items():
        for left_out in criteria:
            for expected in (1, 0):
                if made == count:
                    return
                stated = [c for c in criteria if expected or c is not left_out]
                yield {
                    "task_id": task_id,
                    "rollout_id": canary_id(expected, left_out["criterion_id"]),
                    "criterion_id": left_out["criterion_id"],
                    "task": text[task_id],
                    "answer": " ".join(_statement(c["criterion"] or "") for c in stated),
                    "criterion": left_out["criterion"],
                }
                made += 1


def _statement(criterion: str) -> str:
    """What a criterion asks for, said as an answer would: without its command verb.

    >>> _statement("Provides Baba has craft lomicr .")
    'Baba has craft lomicr .'
    """
    return criterion.partition(" ")[2]
