"""Compare the workload that a configuration plans with what a run's store holds."""

from __future__ import annotations

import importlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.settings import profile
from flows.settings.profile import MethodSettings
from flows.settings.workload import Workload
from warehouse.query import query

# A plan has only the method's own conversations: evaluations, monitors and probes are beside it.
# Labels end with the number of a round: question-2 is the second round of `question`.
CONVERSATIONS = """
select iteration, regexp_replace(coalesce(label, role), '-[0-9]+$', '') as label, count(*) as n
from rollouts
where
    run = $run
    and iteration > 0
    and phase not in ('evaluation', 'benchmark', 'monitor')
    and not starts_with(phase, 'probe')
group by all
"""
UPDATES = """
select iteration, count(distinct (phase, step, label, role)) as n
from updates
where run = $run
group by all
"""


@dataclass(frozen=True)
class Comparison:
    """An iteration's conversations by role and its updates, as planned and as played."""

    iteration: int
    planned: dict[str, float]
    played: dict[str, int]
    beside: dict[str, int]  # by label, of tables that no planned role has
    planned_updates: float
    played_updates: int

    @property
    def share(self) -> float:
        """Conversations played for each one planned."""
        return sum(self.played.values()) / sum(self.planned.values())


def micro_settings(method: str, overrides: dict[str, Any]) -> MethodSettings:
    """A method's profile micro with `overrides`."""
    config = importlib.import_module(f"flows.{method}.config").Config
    return profile.load(config, "micro", overrides)


def compare_workload(cfg: MethodSettings, root: Path, run: str) -> list[Comparison]:
    """Each iteration of the run beside the plan of its configuration."""
    workload = cfg.workload()
    assert workload is not None
    planned = planned_conversations(workload)
    role_of = {
        label: step_role.role.name
        for step in workload.steps
        for step_role in step.conversations
        for label in step_role.role.table_labels
    }
    played: dict[int, Counter[str]] = defaultdict(Counter)
    beside: dict[int, Counter[str]] = defaultdict(Counter)
    for row in query(root, CONVERSATIONS, {"run": run}):
        label = row["label"]
        if label in role_of:
            played[row["iteration"]][role_of[label]] += row["n"]
        else:
            beside[row["iteration"]][label] += row["n"]
    updates = {row["iteration"]: row["n"] for row in query(root, UPDATES, {"run": run})}
    return [
        Comparison(
            iteration=iteration,
            planned=planned,
            played=dict(played[iteration]),
            beside=dict(beside[iteration]),
            planned_updates=workload.num_updates,
            played_updates=updates.get(iteration, 0),
        )
        for iteration in range(1, cfg.iterations + 1)
    ]


def planned_conversations(workload: Workload) -> dict[str, float]:
    """The conversations of an iteration, by role."""
    planned: dict[str, float] = defaultdict(float)
    for step in workload.steps:
        for conversations in step.conversations:
            planned[conversations.role.name] += step.times * conversations.number
    return dict(planned)


def assert_as_planned(
    method: str,
    overrides: dict[str, Any],
    root: Path,
    run: str,
    *,
    beside: frozenset[str] = frozenset(),
) -> None:
    """Fail unless every iteration of the run is about what its configuration plans.

    Its conversations are between 0.4 and 1.5 times the plan's: fewer where questions are rejected
    or replies cannot be read, more where a draw is repeated, which weighs heavily in a run of a few
    prompts. It has at most the planned updates. Every planned role occurs; labels that no role of
    the plan has are those in `beside`.
    """
    comparisons = compare_workload(micro_settings(method, overrides), root, run)
    assert comparisons
    for comparison in comparisons:
        assert 0.4 <= comparison.share <= 1.5, comparison
        assert 1 <= comparison.played_updates <= comparison.planned_updates, comparison
        assert set(comparison.played) == set(comparison.planned), comparison
        assert set(comparison.beside) <= beside, comparison
