"""The watch on what cannot be seen from rewards: a grader that errs or is played, and a pool that runs dry."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flows.scope.config import JudgeSettings, PoolSettings
from flows.scope.steps import Pool, Scope, verdicts
from tasks.ask import ask
from tasks.evaluate import evaluate, scores_of
from tasks.prompt import Row
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
    if not scope.cfg.judge.canaries:
        return
    asked = ask(place, scope.roles.canary, pool.rubrics, pool.tasks, label="canary")
    if asked.num_rows:
        judged = verdicts(scope, place, asked, pool.rubrics, (), label="canary")
        _alarm(scope, evaluate(place, canary_errors, judged, policy=scope.judge("grader").id, benchmark=MONITOR))


def watch_gap(scope: Scope, place: Place, judgments: Table) -> None:
    """Compare verdicts on training answers with the oracle's. Raises JudgeAlarm when their means lie too far apart."""
    if scope.oracle and judgments.num_rows:
        _alarm(scope, evaluate(place, oracle_gap, judgments, policy=scope.judge("grader").id, benchmark=MONITOR))


def canary_errors(judgments: list[Row]) -> Iterator[tuple[str, float]]:
    """1 for a canary judged wrongly or unreadably."""
    for row in judgments:
        yield "canary_error", float(row["verdict"] != row["expected"])
        yield ("false_pass" if row["expected"] == 0 else "false_fail"), float(row["verdict"] != row["expected"])


def oracle_gap(judgments: list[Row]) -> Iterator[tuple[str, float]]:
    """Verdict minus truth, for every verdict that has both, and whether they differ."""
    for row in judgments:
        if row["verdict"] is not None and row["oracle"] is not None:
            yield "judge_minus_oracle", float(row["verdict"] - row["oracle"])
            yield "judge_error", float(row["verdict"] != row["oracle"])


def _alarm(scope: Scope, measured: Table) -> None:
    settings: JudgeSettings = scope.cfg.judge
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
