"""The micro-world of programs: tasks are true, equally many of every length, and can be undone."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from flows.worlds.built_in import PROGRAMS
from flows.worlds.programs import (
    BASE,
    IDENTITY,
    MAX_STEPS,
    TASK_TYPES,
    Program,
    Step,
    draw_program,
    held_out_tasks,
    is_right,
    parse_program,
    parse_task,
    task_text,
)
from tasks.readers.fences import block, blocks
from tests.support.rows import row
from warehouse.schemas import Task

TWO = Program((Step("+", 3), Step("*", 7)))


def run(program: str, argument: str) -> str:
    """What Python itself makes of a program: an oracle beside the world's own."""
    names: dict = {}
    exec(program, names)
    return repr(names["f"](int(argument)))


@pytest.mark.parametrize("num_steps", range(MAX_STEPS + 1))
def test_a_program_is_python_and_gives_what_the_world_says(num_steps: int) -> None:
    rng = random.Random(num_steps)
    for _ in range(20):
        program = draw_program(rng, num_steps)
        for number in range(BASE):
            assert run(program.text, str(number)) == str(program.output(number))
        assert parse_program(program.text) == program


def test_every_step_can_be_undone() -> None:
    steps = {step for n in range(200) for step in draw_program(random.Random(n), 8).steps}
    assert len(steps) == 9 + 9 + 3
    for step in steps:
        assert all(step.undone.of(step.of(digit)) == digit for digit in range(BASE))


def test_any_program_gives_what_one_of_two_steps_gives() -> None:
    for n in range(50):
        program = draw_program(random.Random(n), n % (MAX_STEPS + 1))
        for number in range(BASE):
            assert program.shortest.output(number) == program.output(number)


@pytest.mark.parametrize(
    "text",
    [
        "def f(x): return x",
        "def f ( x ) : return x % 10",
        "def f ( x ) : a = x + 3 ; return b % 10",  # another variable
        "def f ( x ) : b = x + 3 ; return b % 10",
        "def f ( x ) : a = x + 3 ; b = x * 7 ; return b % 10",  # skips one
        "def f ( x ) : a = x + 12 ; return a % 10",
        TWO.text + " ;",
        "",
    ],
)
def test_other_texts_are_not_of_this_world(text: str) -> None:
    assert parse_program(text) is None


def test_a_ninth_step_is_not_of_this_world() -> None:
    steps = draw_program(random.Random(0), MAX_STEPS).text
    longer = steps.replace(" return k % 10", " m = k + 1 ; return m % 10")
    assert parse_program(longer) is None


def test_held_out_tasks_are_of_every_type_and_length_equally_often() -> None:
    tasks = list(held_out_tasks(7, 3 * MAX_STEPS * 4))
    assert Counter((task.task_type, task.num_steps) for task in tasks) == {
        (task_type, count): 4 for task_type in TASK_TYPES for count in range(1, MAX_STEPS + 1)
    }
    messages = Counter(
        block(task.text, "message") == "none" for task in tasks if task.task_type == "induction"
    )
    assert messages == {True: 2 * MAX_STEPS, False: 2 * MAX_STEPS}
    assert tasks == list(held_out_tasks(7, len(tasks)))
    assert not {task.text for task in tasks if task.num_steps > 3} & {
        task.text for task in held_out_tasks(8, len(tasks))
    }


def test_references_of_held_out_tasks_are_what_python_returns() -> None:
    for task in held_out_tasks(7, 96):
        program = block(task.text, "python")
        outputs = [run(program, text) for text in blocks(task.text, "input")]
        reference = [task.reference]
        if task.task_type == "induction":
            reference = json.loads(task.reference)
        assert outputs == reference


def test_the_shown_pairs_of_a_held_out_induction_leave_one_factor() -> None:
    for task in held_out_tasks(7, 300):
        if task.task_type == "induction":
            parsed = parse_task(task.text)
            assert parsed is not None
            first, second, *_ = parsed.inputs
            rise = (parsed.outputs[1] - parsed.outputs[0]) % BASE
            fits = [n for n in (1, 3, 7, 9) if n * (second - first) % BASE == rise]
            assert fits == [parsed.program.factor]


@pytest.mark.parametrize(
    ("task_type", "answer", "right"),
    [
        ("deduction", "9", True),
        ("deduction", " 9 ", True),
        ("deduction", "8", False),
        ("deduction", "nine", None),  # this world knows no other values than whole numbers
        ("abduction", "4", True),
        ("abduction", "14", True),  # another input with the same output
        ("abduction", "-6", True),
        ("abduction", "9", False),
        ("induction", TWO.text, True),
        ("induction", TWO.shortest.text, True),
        ("induction", IDENTITY, False),
        ("induction", "def f ( x ) : return ( x + 3 ) * 7 % 10", None),  # nobody can tell
    ],
)
def test_the_oracle_knows_what_is_right(task_type: str, answer: str, right: bool | None) -> None:
    assert is_right(task_type, task_text(TWO, [4]), answer) is right


def test_the_truth_of_what_the_world_does_not_know_is_open() -> None:
    text = task_text(TWO, [4]).replace("x", "y")
    assert is_right("deduction", text, "9") is None
    assert is_right("deduction", task_text(TWO, []) + "\n```input\n'a'\n```", "9") is None


def test_the_world_offers_tasks_with_their_truth(place) -> None:
    assert PROGRAMS.tasks and PROGRAMS.oracle and PROGRAMS.sound and PROGRAMS.describe
    tasks = PROGRAMS.tasks(place, seed=7, num_tasks=24).rows(Task)
    assert all(PROGRAMS.sound(task) for task in tasks)
    deductions = [task for task in tasks if task["task_type"] == "deduction"]
    assert all(PROGRAMS.oracle(task, task["reference"] or "") for task in deductions)
    assert [task["difficulty"] for task in deductions] == list(range(1, 9))
    wrong = row("tasks", task_type="deduction", text=task_text(TWO, [4]), reference="8")
    assert not PROGRAMS.sound(wrong)
    measured = dict(PROGRAMS.describe(wrong))
    assert measured == {"true_reference": 0.0, "steps": 2.0, "steps_deduction": 2.0}
    assert not list(PROGRAMS.describe(row("tasks", text="def f(a): return a")))
