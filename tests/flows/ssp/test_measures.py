"""What is measured of answers to held-out tasks and of questions, on given rows."""

from __future__ import annotations

from typing import Any

from flows.ssp.measures import measure_answers, measure_questions
from tests.support.rows import row


def values(measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric, value in measured:
        found.setdefault(metric, []).append(value)
    return found


def test_an_answer_that_could_not_be_compared_is_wrong_and_one_never_sampled_does_not_count():
    # answer: its text, why it has none, whether it is right, its searches
    given: dict[str, tuple[str | None, str | None, bool | None, int]] = {
        "right": ("Aarhus", None, True, 2),
        "wrong": ("Bergen", None, False, 1),
        "not compared": ("?", None, None, 1),
        "unread": (None, "no answer", None, 0),
        "failed": (None, "engine error", None, 0),
    }
    tasks: Any = [row("tasks", task_id=name, text="Where?", difficulty="2") for name in given]
    answers: Any = [
        row("answers", rollout_id=name, task_id=name, answer=text, malformed=why, num_searches=num)
        for name, (text, why, _, num) in given.items()
    ]
    matches: Any = [
        row("matches", rollout_id=name, task_id=name, matched=is_right)
        for name, (_, _, is_right, _) in given.items()
    ]
    assert values(measure_answers(tasks, answers, matches)) == {
        "score": [1, 0, 0, 0],
        "score_2_hops": [1, 0, 0, 0],
        "searches": [2, 1, 1, 0],
        "unanswered": [0, 0, 0, 1],
    }


def test_what_is_told_of_questions_is_told_of_the_valid_ones_apart():
    tasks: Any = [row("tasks", task_id=name, text="Where?") for name in ("kept", "dropped", "new")]
    selections: Any = [
        row("selections", task_id=name, kept=name != "dropped")
        for name in ("kept", "dropped", "new")
    ]
    rewards: Any = [
        row("rewards", task_id="kept", score=0.25),
        row("rewards", task_id="dropped", score=0.75),
    ]

    def describe(task: Any):
        yield "hops", 2.0 if task["task_id"] == "kept" else 1.0

    measured = measure_questions(tasks, selections, rewards, describe=describe)
    assert values(measured) == {
        "valid": [1, 0, 1],
        "hops": [2, 1, 1],
        "valid_hops": [2, 1],
        "success": [0.25],
    }
