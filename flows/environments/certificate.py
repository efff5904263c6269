"""The certificate of a run's tasks: the share of valid tasks, with its interval, by auditor.

It is computed from what the run stored: the auditor's verdicts on random samples of the tasks that
passed (`models.auditor`, `audit.tasks`), people's labels of tasks from the viewer's label page, and
the truth in built-in worlds. Nothing is sampled here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tasks.monitors.audit import AUDITOR, GATES, TRUTH
from tasks.monitors.monitor import OF
from warehouse.lake import Lake
from warehouse.schemas import Row
from warehouse.store import Store

PEOPLE = "people"
Z = 1.959963984540054  # normal quantile of a 95 % interval
VERDICTS = """
    select task_id, bool_and(passed) as valid
    from gates where run = $run and gate = $auditor and passed is not null
    group by task_id
"""
# one opinion per task, that of most labellers; a task with a tie is left out
LABELS = """
    with latest as (
        select subject, labeller, arg_max(opinion, labelled_at) as opinion
        from annotations where run = $run and kind = 'task' group by all
    ),
    counted as (
        select
            subject as task_id,
            count(*) filter (where opinion = 'good') as num_good,
            count(*) filter (where opinion in ('bad', 'hack', 'leak')) as num_bad
        from latest group by all
    )
    select task_id, num_good > num_bad as valid from counted where num_good != num_bad
"""
KNOWN = """
    select n, score from evaluations
    where run = $run and benchmark = $benchmark and metric = $metric and n > 0
"""
PASSED = """
    select gate, task_id, bool_and(coalesce(passed, false)) as passed
    from gates where run = $run and gate != $auditor group by all order by all
"""


@dataclass(frozen=True)
class Share:
    """According to `auditor`, `valid` of `n` judged tasks are valid.

    `of` says which tasks: kept ones, or those that a gate passed or refused.
    """

    auditor: str
    of: str
    n: int
    valid: int

    @property
    def share(self) -> float:
        """The share of valid tasks, 0..1."""
        return self.valid / self.n

    @property
    def low(self) -> float:
        """The lower end of the share's 95 % interval (`wilson`)."""
        return wilson(self.valid, self.n)[0]

    @property
    def high(self) -> float:
        """The upper end of the share's 95 % interval (`wilson`)."""
        return wilson(self.valid, self.n)[1]


def wilson(valid: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (1927, JASA 22): within 0..1, and accurate for small n.

    Raises ValueError for n = 0.

    >>> [round(end, 3) for end in wilson(9, 10)], [round(end, 3) for end in wilson(10, 10)]
    ([0.596, 0.982], [0.722, 1.0])
    """
    if n <= 0:
        raise ValueError("a share needs at least one judged task")
    share = valid / n
    centre = share + Z * Z / (2 * n)
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    low = (centre - half) / (1 + Z * Z / n)
    high = (centre + half) / (1 + Z * Z / n)
    return max(0.0, low), min(1.0, high)


def certificate(store: Store, run: str, kept: Collection[str]) -> list[Share]:
    """The share of valid tasks among the tasks with the ids `kept`, by each auditor that judged
    some; then, for each gate, among the judged tasks that it passed and that it refused.

    In a built-in world, the first share is that of all tasks that passed, according to the truth.
    """
    lake = Lake(store)
    judged_by = {
        AUDITOR: lake.query(run, VERDICTS, {"run": run, "auditor": AUDITOR}).rows,
        PEOPLE: lake.query(run, LABELS, {"run": run}).rows,
    }
    gates = lake.query(run, PASSED, {"run": run, "auditor": AUDITOR}).rows
    known = lake.query(
        run, KNOWN, {"run": run, "benchmark": GATES, "metric": f"gate_leak{OF}{TRUTH}"}
    ).rows
    shares = [*_by_truth(known)]
    for auditor, rows in judged_by.items():
        of_kept = [row for row in rows if row["task_id"] in set(kept)]
        shares += _shares(auditor, "kept tasks", of_kept)
    for auditor, rows in judged_by.items():
        shares += _by_gate(auditor, rows, gates)
    return shares


def _by_truth(rows: Iterable[Row]) -> Iterator[Share]:
    """The share for all tasks that passed, according to the truth in a built-in world: a leak is a
    task that should not have passed."""
    rows = list(rows)
    n = sum(row["n"] for row in rows)
    num_leaks = round(sum(row["n"] * row["score"] for row in rows))
    if n:
        yield Share(TRUTH, "tasks that passed", n, n - num_leaks)


def _by_gate(auditor: str, judged: Iterable[Row], gates: Iterable[Row]) -> Iterator[Share]:
    valid_of = {row["task_id"]: row for row in judged}
    outcomes: dict[str, list[Row]] = {}
    for row in gates:
        if row["task_id"] in valid_of:
            verb = "passed" if row["passed"] else "refused"
            outcomes.setdefault(f"{verb} by {row['gate']}", []).append(valid_of[row["task_id"]])
    for of, rows in outcomes.items():
        yield from _shares(auditor, of, rows)


def _shares(auditor: str, of: str, rows: Collection[Row]) -> Iterator[Share]:
    if rows:
        yield Share(auditor, of, len(rows), sum(row["valid"] for row in rows))
