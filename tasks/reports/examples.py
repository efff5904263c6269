"""Whole rollouts worth reading: good, bad, filtered and malformed ones of an iteration."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.reports.data import Source
from tasks.reports.draw import by
from warehouse.schemas import Row, Turn


@dataclass(frozen=True)
class Example:
    """One rollout with its prompt, turns, reward, verdicts and gates; all text in it is untrusted.

    `rollout` is a row of `example_rollouts.sql`, `verdicts` are rows of `example_verdicts.sql`,
    `gates` of `example_gates.sql`.
    """

    kind: str
    why: str
    rollout: Row
    verdicts: list[Row]
    gates: list[Row]

    @property
    def was_graded(self) -> bool:
        """Whether a judge was asked about any criterion, even if its verdict could not be read."""
        return any(
            row["verdict"] is not None or (row["criterion"] and row["malformed"])
            for row in self.verdicts
        )

    @property
    def components(self) -> dict[str, float]:
        """The parts of the rollout's reward by name; empty without a reward."""
        return dict(self.rollout["components"] or {})

    @property
    def turns(self) -> list[Turn]:
        """The rollout's turns; empty if none was sampled."""
        return self.rollout["turns"] or []


def examples(source: Source) -> list[Example]:
    """At most a handful of rollouts from the report's own iteration."""
    chosen = source.rows("examples")
    ids = sorted({row["rollout_id"] for row in chosen})
    if not ids:
        return []
    rollouts = {row["rollout_id"]: row for row in source.rows("example_rollouts", rollout_ids=ids)}
    verdicts = by(source.rows("example_verdicts", rollout_ids=ids), "rollout_id")
    gates = by(source.rows("example_gates", rollout_ids=ids), "rollout_id")
    return [
        Example(
            kind=row["kind"],
            why=row["why"],
            rollout=rollouts[row["rollout_id"]],
            verdicts=verdicts.get(row["rollout_id"], []),
            gates=gates.get(row["rollout_id"], []),
        )
        for row in chosen
        if row["rollout_id"] in rollouts
    ]
