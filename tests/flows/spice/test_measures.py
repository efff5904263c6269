"""What is measured of the questions of an iteration, on given rows."""

from __future__ import annotations

from typing import Any

from flows.spice.measures import measure_questions
from tests.support.rows import row


def values(measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric, value in measured:
        found.setdefault(metric, []).append(value)
    return found


def question(name: str, answer_type: str | None, text: str | None = "How many?") -> Any:
    return row("tasks", task_id=name, text=text, answer_type=answer_type)


def test_shares_of_answer_types_are_of_valid_questions_and_pass_rates_of_rewarded_ones():
    tasks = [
        question("a", "Integer"),
        question("b", "Integer"),
        question("c", "String"),
        question("d", None, text=None),
        question("e", None),
    ]
    rewards: list[Any] = [
        row("rewards", task_id="a", score=0.25),
        row("rewards", task_id="c", score=0.5),
        row("rewards", task_id="d", score=None),
        row("rewards", task_id="e", score=0.75),
    ]
    assert values(measure_questions(tasks, rewards, describe=None)) == {
        "valid": [1, 1, 1, 0, 1],
        "share_Integer": [1, 1, 0, 0],
        "share_String": [0, 0, 1, 0],
        "pass_rate": [0.25, 0.5, 0.75],
        "pass_rate_Integer": [0.25],
        "pass_rate_String": [0.5],
    }


def test_a_world_describes_valid_questions():
    def describe(task: Any):
        yield "named", float(task["task_id"] == "a")

    tasks = [question("a", "Integer"), question("b", "Integer", text=None)]
    assert values(measure_questions(tasks, [], describe=describe))["named"] == [1]
