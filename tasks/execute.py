"""Run programs that a policy wrote, in a sandbox: one row for each program and input."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tasks.processes.sandbox import Sandbox, SandboxSettings
from tasks.stage import Rows, Tables, check_tables, name_of, rows_of, stage
from warehouse.schemas import EXECUTIONS, Row

Jobs = Callable[..., Iterable[Row]]


@stage(EXECUTIONS, tools=("num_workers",), code=("tasks.processes.sandbox_child",))
def execute(
    jobs: Jobs,
    /,
    *,
    sandbox: SandboxSettings,
    num_runs: int = 1,
    num_workers: int = 1,
    **tables: Tables,
) -> Rows:
    """Yield a row for every program and input that `jobs` yields, with the outcome.

    `jobs` receives the rows of the tables that its parameters name, and yields `subject_id`,
    `position`, `program` and `input`. A program has an output if its function `f` returns a value
    of built-in types for that input, the same in each of `num_runs` interpreters (with different
    hash seeds); otherwise the row has the reason. Equal programs with equal inputs run once.

    Raises RuntimeError if the kernel cannot confine programs, unless `sandbox.unconfined`;
    TypeError if the tables do not match the parameters of `jobs`.
    """
    # A worked example: `jobs` yields {"subject_id": "t", "position": 0, "program": "def f(a, b):
    # return a + b", "input": "1, 2"}. The row has the output "3".
    check_tables(f"jobs {name_of(jobs)}", jobs, tables)
    arguments: dict[str, Any] = {name: rows_of(table) for name, table in tables.items()}
    rows = list(jobs(**arguments))
    programs = list(dict.fromkeys((row["program"], row["input"]) for row in rows))
    with Sandbox(sandbox, min(num_workers, len(programs))) as confined:
        executions = confined.run([(program, text, num_runs) for program, text in programs])
        execution_of = dict(zip(programs, executions, strict=True))
    for row in rows:
        yield {**row, **vars(execution_of[row["program"], row["input"]])}
