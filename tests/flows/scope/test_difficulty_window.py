import json
import math
from typing import Any

import pytest

from flows.scope.steps import DIFFICULTY_WINDOW
from tasks.keep import Limit, keep
from tests.support.rows import publish, row
from warehouse.store import Table

BOUNDS = {"low": 0.2, "high": 0.8, "min_rollouts": 1, "seed": 0}
FINE = {
    "passed_gates": 1.0,
    "has_rubric": 1.0,
    "num_rollouts": 4.0,
    "num_met": 6.0,
    "num_criteria": 12.0,
}


def candidate(task_id: str, document_id: str | None = None, **parts: Any) -> dict[str, Any]:
    """A candidate with its own document, valid except as given; `malformed` and `unscorable` are
    reasons."""
    reasons = {name: parts.pop(name, None) for name in ("malformed", "unscorable")} | {
        "score": parts.pop("score", 0.5)
    }
    components = {k: v for k, v in {**FINE, **parts}.items() if v is not None}
    return {
        "task_id": task_id,
        "document_id": document_id or f"doc {task_id}",
        "components": components,
        **reasons,
    }


def select(
    place,
    candidates,
    earlier=(),
    batch: int = 1,
    tasks_per_document: int = 1,
    target: int = 1000,
    **bounds: Any,
) -> Table:
    step = place.step(batch)
    tasks = [
        row("tasks", **{k: c[k] for k in ("task_id", "document_id", "malformed")})
        for c in candidates
    ]
    scores = [
        row("rewards", **{k: c[k] for k in ("task_id", "components", "unscorable", "score")})
        for c in candidates
    ]
    tables = {"tasks": publish(step, "tasks", *tasks), "rewards": publish(step, "rewards", *scores)}
    limits = (
        Limit(tasks_per_document, "another task of its document is kept", per="document_id"),
        Limit(target, "target already met"),
    )
    return keep(
        step,
        DIFFICULTY_WINDOW,
        **tables,
        earlier=tuple(earlier),
        limits=limits,
        **{**BOUNDS, **bounds},
    )


def reasons(table: Table) -> dict[str, str | None]:
    assert all(r["kept"] == (r["reason"] is None) for r in table.rows())
    return {r["task_id"]: r["reason"] for r in table.rows()}


def kept(table: Table) -> list[str]:
    return [r["task_id"] for r in table.rows() if r["kept"]]


def mean(*scores: float) -> float:
    return math.fsum(scores) / len(scores)


def test_every_candidate_is_kept_or_says_its_first_reason(place):
    given = {
        "fine": ({}, None),
        "engine": ({"unscorable": "engine error", "malformed": "engine error"}, "engine error"),
        "unread": ({"malformed": "no task element", "passed_gates": 0.0}, "malformed task"),
        "gate": ({"passed_gates": 0.0, "has_rubric": 0.0, "score": None}, "failed a quality gate"),
        "rubric": ({"has_rubric": 0.0, "score": None}, "no valid rubric"),
        "ungraded": (
            {"score": None, "num_rollouts": 0.0, "num_met": 0.0, "num_criteria": 0.0},
            "too few graded rollouts",
        ),
        "hard": ({"score": 0.0}, "too hard"),
        "easy": ({"score": 1.0}, "too easy"),
    }
    found = select(place, [candidate(task_id, **parts) for task_id, (parts, _) in given.items()])
    assert reasons(found) == {task_id: reason for task_id, (_, reason) in given.items()}


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (mean(*[1] * 2, *[0] * 8), None),  # 2 of 10
        (mean(1 / 3, 1 / 3, 1 / 3, 0, 0), None),  # 3 of 15
        (mean(0.4, 0, 0.4, 0), None),
        (mean(1, 1, 2 / 3, 2 / 3, 2 / 3), None),  # 12 of 15
        (mean(*[1] * 8, *[0] * 2), None),  # 8 of 10
        (mean(0.6, 1, 0.6, 1), None),
        (0.1 + 0.1, None),
        (0.1 * 8, None),
        (0.2 - 1e-6, "too hard"),
        (0.8 + 1e-6, "too easy"),
        (mean(*[1] * 19, *[0] * 81), "too hard"),
        (mean(*[1] * 81, *[0] * 19), "too easy"),
    ],
)
def test_both_ends_of_the_window_are_inside_however_the_mean_came_about(place, score, reason):
    assert reasons(select(place, [candidate("t", score=score)])) == {"t": reason}


def test_bounds_are_settings(place):
    given = [
        candidate("a", score=0.1, num_rollouts=3.0),
        candidate("b", score=0.9),
        candidate("c", num_rollouts=2.0),
    ]
    found = select(place, given, low=0.1, high=0.85, min_rollouts=3)
    assert reasons(found) == {"a": None, "b": "too easy", "c": "too few graded rollouts"}
    assert json.loads(found.rows()[0]["bounds"]) == {
        "low": 0.1, "high": 0.85, "min_rollouts": 3, "seed": 0,
        "another task of its document is kept": 1, "target already met": 1000,
    }  # fmt: skip


def test_what_was_measured_stands_beside_the_decision(place):
    (found,) = select(place, [candidate("t", "d", score=0.25, num_met=3.0)]).rows()
    measured = {
        "document_id": "d",
        "mean_score": 0.25,
        "num_correct": 3,
        "num_judged": 12,
        "num_rollouts": 4,
    }
    assert {k: found[k] for k in measured} == measured


@pytest.mark.parametrize(("num_criteria", "num_judged"), [(0.0, None), (1.0, 1)])
def test_no_verdicts_are_none_and_one_is_one(place, num_criteria, num_judged):
    (found,) = select(place, [candidate("t", num_met=0.0, num_criteria=num_criteria)]).rows()
    assert found["num_judged"] == num_judged


def test_one_task_is_kept_of_a_document(place):
    given = [candidate(t, "d") for t in "abc"] + [
        candidate("e", "f"),
        candidate("hard", "d", score=0.0),
    ]
    found = reasons(select(place, given))
    assert (
        sorted(str(found[t]) for t in "abc")
        == ["None"] + ["another task of its document is kept"] * 2
    )
    assert (found["e"], found["hard"]) == (None, "too hard")


def test_one_task_is_kept_of_a_document_over_all_batches(place):
    first = select(place, [candidate("a", "d"), candidate("rejected", "e", score=1.0)])
    second = select(place, [candidate("b", "d"), candidate("c", "e")], earlier=[first], batch=2)
    assert reasons(second) == {"b": "another task of its document is kept", "c": None}


def test_more_tasks_of_a_document_are_a_setting(place):
    first = select(place, [candidate("a", "d")], tasks_per_document=2)
    second = select(
        place,
        [candidate("b", "d"), candidate("c", "d")],
        earlier=[first],
        batch=2,
        tasks_per_document=2,
    )
    assert len(kept(second)) == 1


def test_no_more_than_the_target_are_kept_over_all_batches(place):
    assert len(kept(select(place, [candidate(t) for t in "abc"], batch=9, target=2))) == 2
    first = select(place, [candidate(t) for t in "abc"], target=5)
    second = select(place, [candidate(t) for t in "defgh"], earlier=[first], batch=2, target=5)
    third = select(place, [candidate("i")], earlier=[first, second], batch=3, target=5)
    assert [len(kept(s)) for s in (first, second, third)] == [3, 2, 0]
    assert sorted(map(str, reasons(second).values())) == ["None"] * 2 + ["target already met"] * 3
    assert reasons(third) == {"i": "target already met"}


def test_the_order_is_drawn_by_the_seed_and_by_nothing_else(place):
    given = [candidate(f"t{i}") for i in range(12)]
    order = kept(select(place, given, target=6))
    assert kept(select(place, given[::-1], batch=2, target=6)) == order
    assert kept(select(place, given, batch=3, target=6, seed=1)) != order
    assert order != sorted(order)


def test_kept_tasks_come_first(place):
    given = [
        candidate("easy", score=1.0),
        candidate("a"),
        candidate("hard", score=0.0),
        candidate("b"),
    ]
    assert [r["kept"] for r in select(place, given).rows()] == [True, True, False, False]


def test_no_candidates_make_an_empty_selection(place):
    assert select(place, []).rows() == []


def test_the_bounds_themselves_are_inside(place):
    """The tolerance is 1e-9: in double precision these bounds, with it, are 0.25 and 0.75."""
    low = 0.250000001
    high = 0.749999999
    assert (low - 1e-9, high + 1e-9) == (0.25, 0.75)
    given = [candidate("low", score=0.25), candidate("high", score=0.75)]
    assert sorted(kept(select(place, given, low=low, high=high))) == ["high", "low"]
