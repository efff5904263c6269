"""EAPO's rewards (section 3.2), and the rows of `rewards` made from them.

Every part lies in 0..1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flows.eapo.compare import marks_of
from flows.eapo.config import Rewards
from flows.eapo.evidence import answer_correctness
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Mark, Match, Row, Vote


def evidence_reward(mark_of: Mapping[str, float]) -> dict[str, float]:
    """R_e: the marks of one group, min-max scaled to 0..1.

    If all marks are equal, they are returned unchanged.

    >>> evidence_reward({"a": 0.25, "b": 0.5, "c": 0.75})
    {'a': 0.0, 'b': 0.5, 'c': 1.0}
    >>> evidence_reward({"a": 0.75, "b": 0.75}), evidence_reward({})
    ({'a': 0.75, 'b': 0.75}, {})
    """
    low = min(mark_of.values(), default=0.0)
    high = max(mark_of.values(), default=0.0)
    if high == low:
        return dict(mark_of)
    return {rollout_id: (mark - low) / (high - low) for rollout_id, mark in mark_of.items()}


def weighted_reward(evidence: float, answer: float, weights: Rewards) -> float:
    """Eq. 2 for a four-part reply.

    >>> round(weighted_reward(0.5, 1.0, Rewards()), 4)
    0.85
    >>> round(weighted_reward(1.0, 0.0, Rewards(evidence=0.5)), 4)
    0.6
    """
    answer_weight = 1 - weights.format - weights.evidence
    return weights.format + weights.evidence * evidence + answer_weight * answer


def policy_rewards(
    answers: list[Answer],
    marks: list[Mark],
    matches: list[Match],
    votes: list[Vote],
    *,
    weights: Rewards,
) -> Iterator[Row]:
    """Yield R for every answer; a group is the answers to one prompt.

    A reply without all four parts earns nothing. Evidence earns nothing if its group's comparison
    cannot be read. An answer whose outcome is unknown has no reward.
    """
    mark_of = marks_of(marks)
    correct_of = answer_correctness(answers, matches, votes)
    for group in rows_by("prompt_id", answers).values():
        names = [row["rollout_id"] for row in group if row["rollout_id"] in mark_of]
        evidence_of = evidence_reward({name: mark_of[name] for name in names})
        for row in group:
            if row["answer"] is None:
                yield scored(row, 0.0, {"format": 0.0}, score=0.0)
                continue
            name = row["rollout_id"]
            evidence = evidence_of.get(name, 0.0)
            parts = {"format": 1.0, "evidence": evidence, "verbatim": row["verbatim"] or 0.0}
            if name in mark_of:
                parts["mark"] = mark_of[name]
            correct = correct_of[name]
            if correct is None:
                why = "nobody can tell whether the answer is right"
                yield scored(row, None, parts, unscorable=why)
                continue
            outcome = float(correct)
            parts["answer"] = outcome
            yield scored(row, weighted_reward(evidence, outcome, weights), parts, score=outcome)
