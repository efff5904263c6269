"""EAPO's rewards (section 3.2), and the rows of `scores` made from them. Every part lies in 0..1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flows.eapo.config import Rewards
from flows.evidence import outcomes
from tasks.compare import marks_of
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Mark, Match, Row, Vote


def relative(mark_of: Mapping[str, float]) -> dict[str, float]:
    """R_e: the marks of one group, scaled from its lowest to its highest; if all are equal, the marks themselves.

    >>> relative({"a": 0.25, "b": 0.5, "c": 0.75}), relative({"a": 0.75, "b": 0.75}), relative({})
    ({'a': 0.0, 'b': 0.5, 'c': 1.0}, {'a': 0.75, 'b': 0.75}, {})
    """
    low, high = min(mark_of.values(), default=0.0), max(mark_of.values(), default=0.0)
    return {name: (m - low) / (high - low) if high > low else m for name, m in mark_of.items()}


def total(evidence: float, answer: float, weights: Rewards) -> float:
    """Eq. 2, of a reply in four parts.

    >>> round(total(0.5, 1.0, Rewards()), 4), round(total(1.0, 0.0, Rewards(evidence=0.5)), 4)
    (0.85, 0.6)
    """
    return weights.format + weights.evidence * evidence + (1 - weights.format - weights.evidence) * answer


def pay_policy(
    answers: list[Answer], marks: list[Mark], matches: list[Match], votes: list[Vote], *, weights: Rewards
) -> Iterator[Row]:
    """R: a reply without the four parts earns nothing. Evidence earns nothing if its group's comparison cannot be read;
    an answer whose outcome is unknown has no reward."""
    mark_of, right = marks_of(marks), outcomes(answers, matches, votes)
    for group in rows_by("prompt_id", answers).values():
        known = {row["rollout_id"]: mark_of[row["rollout_id"]] for row in group if row["rollout_id"] in mark_of}
        worth = relative(known)
        for row in group:
            name, correct = row["rollout_id"], right[row["rollout_id"]]
            if row["answer"] is None:
                yield scored(row, 0.0, {"format": 0.0}, score=0.0)
                continue
            parts = {"format": 1.0, "evidence": worth.get(name, 0.0), "verbatim": row["verbatim"] or 0.0}
            parts |= {"mark": known[name]} if name in known else {}
            if correct is None:
                yield scored(row, None, parts, unscorable="nobody can tell whether the answer is right")
                continue
            parts["answer"] = float(correct)
            yield scored(row, total(parts["evidence"], parts["answer"], weights), parts, score=parts["answer"])
