"""Which tasks the policy trains on, and why not on the others: given and expected rows."""

from __future__ import annotations

from typing import Any

import pytest

from flows.goose.flow import NOT_EASY
from tasks.keep import keep
from tests.support.rows import publish, row
from warehouse.store import Place


def select(
    place: Place,
    attempts: dict[str, list[float | None]],
    *,
    malformed: str | None = None,
    too_easy: float = 1.0,
    enabled: bool = True,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The decisions on tasks, given the scores of the attempts at each; None was not compared."""
    tasks = (row("tasks", task_id=name, text="?", malformed=malformed) for name in attempts)
    scores = (
        row("rewards", rollout_id=f"{name}-{number}", task_id=name, score=score)
        for name, of_task in attempts.items()
        for number, score in enumerate(of_task)
    )
    return keep(
        place,
        NOT_EASY,
        tasks=publish(place, "tasks", *tasks),
        rewards=publish(place, "rewards", *scores),
        too_easy=too_easy,
        enabled=enabled,
        seed=seed,
    ).rows()


@pytest.mark.parametrize(
    ("scores", "given", "reason"),
    [
        ([1, 1, 1, 0], {}, None),
        ([1, 1, 1, 1], {}, "too easy"),
        ([1, 1, 1, None], {}, "too easy"),  # what was not compared is in no mean
        ([1, 1, 1, 0], {"too_easy": 0.75}, "too easy"),
        ([1, 1, 0, 0], {"too_easy": 0.75}, None),
        ([0, 0, 0, 0], {}, None),  # a hard task stays
        ([1, 1, 1, 1], {"enabled": False}, None),
        ([None, None], {}, "no attempt could be compared"),
        ([], {}, "no attempt could be compared"),
        ([], {"malformed": "no step"}, "malformed: no step"),
    ],
)
def test_a_task_is_kept_or_has_its_first_reason_why_not(
    place: Place, scores, given, reason
) -> None:
    [decision] = select(place, {"t": scores}, **given)
    assert (decision["kept"], decision["reason"]) == (reason is None, reason)


def test_a_decision_counts_the_attempts_that_could_be_compared(place: Place) -> None:
    [decision] = select(place, {"t": [1, 0, 0, 0, None]})
    counts = [decision[name] for name in ("num_correct", "num_judged", "num_rollouts")]
    assert (counts, decision["mean_score"]) == ([1, 4, 5], 0.25)


def test_tasks_stand_in_the_order_of_the_seed(place: Place) -> None:
    attempts: dict[str, list[float | None]] = {f"t{number}": [0, 1] for number in range(8)}

    def order(step: int, seed: int) -> list[str]:
        return [decision["task_id"] for decision in select(place.step(step), attempts, seed=seed)]

    assert order(1, seed=0) == order(2, seed=0) != order(3, seed=1)
    assert order(4, seed=0) != sorted(attempts)
