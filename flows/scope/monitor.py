"""Monitors for what rewards do not show: a grader that errs or is gamed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from flows.blocks.audit.audit import watch_gates
from flows.run import Player
from flows.scope.rubrics import canaries
from flows.scope.steps import NOT_NEEDED, Pool, Scope, grade_canaries
from tasks.evaluate import Measure
from tasks.monitors.monitor import JUDGE, POOL, canary_errors, judge_gap, tasks_written
from tasks.stage import Tables, rows_of
from warehouse.schemas import JUDGMENTS
from warehouse.store import Place, Table

UNTRUSTED = (
    'Look at the verdicts (selfplay sql "from judgments"), choose another models.grader, or raise'
    " the limit: monitor.max_canary_rise, monitor.max_canary_error, monitor.max_judge_minus_oracle."
)


def watch_canaries(scope: Scope, place: Place, tasks: Tables, rubrics: Tables) -> None:
    """Grade canaries: answers with known verdicts, made from rubrics. Raises Alarm if too many are
    misjudged, or many more than at the same place in the run's first iteration."""
    cfg = scope.run.cfg
    if cfg.judge.canaries and list(rows_of(rubrics)):
        role = replace(
            scope.roles.grader, name="canary", variables=partial(canaries, count=cfg.judge.canaries)
        )
        judgments = grade_canaries(scope, place, role, tasks=tasks, rubrics=rubrics)
        in_first_iteration = replace(place, at=replace(place.at, iteration=cfg.first_iteration))
        first = place.store.find(in_first_iteration.address(JUDGMENTS.name, role.name))
        baseline = {} if first is None else {"first": first}
        _watch_judge(scope, place, canary_errors, judgments, **baseline)


def watch_tasks(scope: Scope, iteration: Place, challenger: Player, pool: Pool) -> None:
    """Raise Alarm if candidate tasks are empty or copies of each other, if too few pass the
    filter, or if too many pass that should not."""
    if not pool.scored:
        return
    run = scope.run
    policy = challenger.policy.id
    place = iteration.phase("monitor")
    run.watch(place, tasks_written, policy=policy, benchmark=POOL, label="tasks", tasks=pool.tasks)
    run.watch_pool(iteration, policy, pool.selections, passed=NOT_NEEDED)
    watch_gates(
        run,
        place,
        policy,
        tasks=pool.tasks,
        chosen=pool.selections,
        passed=NOT_NEEDED,
        sound=scope.sound,
        shown={"documents": scope.documents},
    )


def watch_gap(scope: Scope, place: Place, judgments: Table) -> None:
    """Compare verdicts on training answers with the oracle's. Raises Alarm if their means differ
    too much."""
    if scope.oracle and judgments.num_rows:
        _watch_judge(scope, place, judge_gap, judgments)


def _watch_judge(
    scope: Scope, place: Place, measure: Measure, judgments: Table, **baseline: Table
) -> None:
    scope.run.watch(
        place,
        measure,
        policy=scope.run.model("grader").id,
        benchmark=JUDGE,
        judgments=judgments,
        way_out=UNTRUSTED,
        **baseline,
    )
