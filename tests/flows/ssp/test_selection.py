"""Which questions the Solver gets, and why the others do not reach it: given and expected rows."""

from __future__ import annotations

from typing import Any

import pytest

from flows.ssp.steps import VALID
from tasks.keep import keep
from tests.support.rows import publish, row
from warehouse.store import Place


def select(
    place: Place,
    *tasks: dict[str, Any],
    gates: dict[str, bool | None] | None = None,
    checks: tuple[tuple[bool | None, str | None], ...] = (),
    checked: bool = True,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """The decisions on `tasks`. `gates` and `checks` are of the first: the outcome of each rule,
    and of each check with documents, with the reason why it could not be compared."""
    first = tasks[0]["task_id"]
    ruled = (
        row("gates", task_id=first, gate=name, kind="rule", passed=passed)
        for name, passed in (gates or {}).items()
    )
    compared = (
        row("matches", rollout_id=f"c{number}", task_id=first, matched=matched, reason=reason)
        for number, (matched, reason) in enumerate(checks)
    )
    return keep(
        place,
        VALID,
        tasks=publish(place, "tasks", *tasks),
        gates=publish(place, "gates", *ruled),
        matches=publish(place, "matches", *compared),
        checked=checked,
        seed=seed,
    ).rows()


def task(task_id: str = "t", malformed: str | None = None) -> dict[str, Any]:
    return row("tasks", task_id=task_id, document_id="d", text="Who?", malformed=malformed)


RIGHT = ((True, None),)


@pytest.mark.parametrize(
    ("malformed", "gates", "checks", "reason"),
    [
        (None, {"length": True, "searched": True}, RIGHT, None),
        (None, {}, ((False, None), (True, None)), None),  # one right check is enough
        ("no question", {"length": False}, (), "malformed: no question"),
        (None, {"searched": False, "length": False}, RIGHT, "rule: length"),  # the first by name
        (None, {"length": None}, RIGHT, "rule: length"),  # a rule that could not be applied
        (None, {}, ((False, None),), "check: another answer"),
        (None, {}, ((None, "too slow"),), "check: too slow"),
        (None, {}, (), "check: no reply"),
    ],
)
def test_a_question_is_kept_or_has_its_first_reason_why_not(
    place: Place, malformed, gates, checks, reason
) -> None:
    [decision] = select(place, task(malformed=malformed), gates=gates, checks=checks)
    assert (decision["kept"], decision["reason"]) == (reason is None, reason)


def test_without_a_check_a_question_needs_none(place: Place) -> None:
    [decision] = select(place, task(), checked=False)
    assert (decision["kept"], decision["num_rollouts"]) == (True, 0)


def test_a_decision_counts_the_checks_that_could_be_compared(place: Place) -> None:
    checks = ((True, None), (False, None), (False, None), (None, "too slow"))
    [decision] = select(place, task(), checks=checks)
    counts = [decision[name] for name in ("num_correct", "num_judged", "num_rollouts")]
    assert counts == [1, 3, 4]
    assert decision["mean_score"] == pytest.approx(1 / 3)


def test_questions_are_drawn_in_the_order_of_the_seed_whatever_their_own(place: Place) -> None:
    tasks = [task(f"t{number}") for number in range(8)]

    def order(step: int, *given: dict[str, Any], seed: int) -> list[str]:
        decisions = select(place.step(step), *given, checked=False, seed=seed)
        return [decision["task_id"] for decision in decisions]

    first = order(1, *tasks, seed=0)
    assert first == order(2, *tasks[::-1], seed=0)
    assert first != order(3, *tasks, seed=1)
    assert first != sorted(first)
