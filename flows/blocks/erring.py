"""Training on deliberately wrong verdicts, to study how much error a method tolerates."""

from __future__ import annotations

from functools import partial
from typing import Any

from flows.run import Run
from tasks.erring import erring_matches, verdict_errors
from tasks.monitors.monitor import JUDGE
from tasks.noise import VerdictErrors
from tasks.stage import Tables
from warehouse.store import Place, Table


def erring_verdicts(
    run: Run[Any],
    at: Place,
    policy: str,
    errors: VerdictErrors,
    *,
    matches: Table,
    answers: Table,
    rollouts: Table,
    tasks: Tables,
) -> Table:
    """The verdicts on answers, with the errors that the configuration asks for; the share of errors
    is measured.

    Raises ValueError if the run has no world with an oracle for answers.
    """
    if errors.shape == "none":
        return matches
    oracle = run.world and run.world.oracle
    if oracle is None:
        raise no_truth(errors)
    erring = erring_matches(
        at,
        matches,
        answers,
        rollouts,
        tasks,
        oracle=oracle,
        errors=errors,
        seed=run.cfg.seed,
        label="erring",
    )
    run.watch(
        at,
        partial(verdict_errors, oracle=oracle),
        policy=policy,
        benchmark=JUDGE,
        label="verdicts",
        matches=erring,
        answers=answers,
        tasks=tasks,
    )
    return erring


def no_truth(errors: VerdictErrors) -> ValueError:
    """The error for deliberate errors in verdicts whose truth nobody knows."""
    return ValueError(
        f"errors.shape is {errors.shape!r}, which needs a built-in world that knows the truth:"
        " leave errors out, or learn in such a world, as the profile micro does"
    )
