"""The stage that runs programs: one row for each program and input, with what came of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.execute import execute
from tasks.processes.sandbox import SandboxSettings
from tests.support.rows import publish, row
from warehouse.schemas import Row, Task
from warehouse.store import Place, Table

SETTINGS = SandboxSettings(cpu_s=2, memory_bytes=256 << 20)


def programs(place: Place, *texts: str) -> Table:
    rows = [row("tasks", task_id=str(i), text=text) for i, text in enumerate(texts)]
    return publish(place, "tasks", *rows)


def on_two_inputs(tasks: list[Task]) -> Iterator[Row]:
    for task in tasks:
        for position, text in enumerate(("1", "'a'")):
            yield {
                "subject_id": task["task_id"],
                "position": position,
                "program": task["text"],
                "input": text,
            }


def test_every_program_has_a_row_for_each_input(place: Place) -> None:
    """The second program fails on text, the third always."""
    tasks = programs(
        place,
        "def f(a): return [a, a]",
        "def f(a): return a - 1",
        "def f(a): return open('/etc/passwd').read()",
    )
    rows = execute(place, on_two_inputs, tasks=tasks, sandbox=SETTINGS, num_workers=2).rows()
    columns = ("subject_id", "position", "output", "error", "reason")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("0", 0, "[1, 1]", None, None),
        ("0", 1, "['a', 'a']", None, None),
        ("1", 0, "0", None, None),
        ("1", 1, None, "TypeError", "raised TypeError"),
        ("2", 0, None, "PermissionError", "raised PermissionError"),
        ("2", 1, None, "PermissionError", "raised PermissionError"),
    ]  # fmt: skip


def test_equal_programs_run_once(place: Place) -> None:
    tasks = programs(place, *["def f(a): return a"] * 5)
    rows = execute(place, on_two_inputs, tasks=tasks, sandbox=SETTINGS).rows()
    assert len(rows) == 10
    assert len({row["seconds"] for row in rows}) == 2


def test_the_number_of_processes_changes_no_row(place: Place) -> None:
    """It is a tool: the table that one process made is fresh for two."""
    tasks = programs(place, "def f(a): return a")
    first = execute(place, on_two_inputs, tasks=tasks, sandbox=SETTINGS, num_workers=1)
    second = execute(place, on_two_inputs, tasks=tasks, sandbox=SETTINGS, num_workers=2)
    assert first.recipe["key"] == second.recipe["key"]
    assert "num_workers" in first.recipe["tools"]


def test_the_code_that_confines_programs_is_part_of_the_recipe(place: Place) -> None:
    tasks = programs(place, "def f(a): return a")
    recipe = execute(place, on_two_inputs, tasks=tasks, sandbox=SETTINGS).recipe
    assert any("sandbox_child" in name for name in recipe["code"])


def test_tables_that_jobs_does_not_take_are_refused(place: Place) -> None:
    with pytest.raises(TypeError, match="jobs on_two_inputs needs tasks; got no table"):
        execute(place, on_two_inputs, sandbox=SETTINGS)
