"""The watch on what cannot be seen from rewards: a grader that errs or is played, and a pool that runs dry."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from flows.scope.config import JudgeSettings, PoolSettings
from flows.scope.roles import criteria_of
from flows.scope.steps import Pool, Scope, grade
from tasks.evaluate import evaluate, scores_of
from tasks.judge import canary_id
from tasks.prompt import Row
from warehouse.schemas import Criterion, Judgment, Task
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")

MONITOR = "judge monitor"


class JudgeAlarm(RuntimeError):
    """The grader's verdicts cannot be trusted; the run stopped before it trained on them."""


class ShortPool(RuntimeError):
    """Fewer tasks passed the difficulty window than the Solver is to train on."""


def watch_canaries(scope: Scope, place: Place, pool: Pool) -> None:
    """Grade answers of known verdict made from the pool's rubrics.

    Raises JudgeAlarm when the error passes `judge.max_judge_error`.
    """
    count = scope.run.cfg.judge.canaries
    if count and any(table.num_rows for table in pool.rubrics):
        role = replace(scope.roles.grader, name="canary", about=partial(canaries, count=count))
        judged = grade(scope, place, tasks=pool.tasks, rubrics=pool.rubrics, answers=(), role=role)
        grader = scope.run.model("grader").id
        _alarm(scope, evaluate(place, canary_errors, judgments=judged, policy=grader, benchmark=MONITOR))


def watch_gap(scope: Scope, place: Place, judgments: Table) -> None:
    """Compare verdicts on training answers with the oracle's. Raises JudgeAlarm when their means lie too far apart."""
    if scope.oracle and judgments.num_rows:
        grader = scope.run.model("grader").id
        _alarm(scope, evaluate(place, oracle_gap, judgments=judgments, policy=grader, benchmark=MONITOR))


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


def canary_errors(judgments: list[Judgment]) -> Iterator[tuple[str, float]]:
    """1 for a canary judged wrongly or unreadably."""
    for row in judgments:
        yield "canary_error", float(row["verdict"] != row["expected"])
        yield ("false_pass" if row["expected"] == 0 else "false_fail"), float(row["verdict"] != row["expected"])


def oracle_gap(judgments: list[Judgment]) -> Iterator[tuple[str, float]]:
    """Verdict minus truth, for every verdict that has both, and whether they differ."""
    for row in judgments:
        if row["verdict"] is not None and row["oracle"] is not None:
            yield "judge_minus_oracle", float(row["verdict"] - row["oracle"])
            yield "judge_error", float(row["verdict"] != row["oracle"])


def _alarm(scope: Scope, measured: Table) -> None:
    settings: JudgeSettings = scope.run.cfg.judge
    scores = scores_of(measured)
    for metric in ("canary_error", "judge_minus_oracle"):
        value = scores.get(metric)
        if value is not None and abs(value) > settings.max_judge_error:
            raise JudgeAlarm(
                f"{measured.address}: {metric} is {value:.3f}, above judge.max_judge_error {settings.max_judge_error}. "
                'Look at the verdicts (selfplay sql "from judgments"), choose another models.grader, or raise it.'
            )


def check_pool(cfg: PoolSettings, num_kept: int, target: int) -> None:
    """Raises ShortPool where a short pool is an error; otherwise says how short it is."""
    if num_kept >= target:
        return
    says = f"{num_kept} tasks kept of {target} after {cfg.max_batches} batches of {cfg.candidates_per_batch} candidates"
    if cfg.short_pool == "error":
        raise ShortPool(
            f"{says}. Raise pool.max_batches, widen pool.window, or set pool.short_pool=fewer_steps; "
            "selections say why the others were not kept."
        )
    log.warning("%s: the Solver gets fewer steps", says)


def _statement(criterion: str) -> str:
    """What a criterion asks for, said as an answer would: without its command verb.

    >>> _statement("Provides Baba has craft lomicr .")
    'Baba has craft lomicr .'
    """
    return criterion.partition(" ")[2]
