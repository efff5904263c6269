"""Measures of how a run develops: training data and held-out scores, compared with earlier ones.

They are passed to `tasks.monitors.monitor.watch`; `tasks.monitors.limits` has the limits that all
methods share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from tasks.monitors.monitor import OF, Measured, contrast
from tasks.stage import rows_by
from warehouse.schemas import Advantage


class Length(TypedDict):
    """Columns of a rollout."""

    rollout_id: str
    role: str
    num_sampled_tokens: int


class Choice(TypedDict):
    """Columns of a selection, a group or a pool entry."""

    kept: bool
    reason: str | None


class Text(TypedDict):
    """Columns of a task."""

    task_id: str
    text: str | None


def trained_on(
    advantages: list[Advantage], rollouts: list[Length], *, first: Mapping[str, float]
) -> Measured:
    """Yield the contrast of the groups and, by role, the rewards, the length of rewarded replies in
    tokens, and the ratio of the mean length to that in `first`."""
    yield from contrast(advantages)
    reward_of = {row["rollout_id"]: row["reward"] for row in advantages}
    rewarded = [row for row in rollouts if row["rollout_id"] in reward_of]
    for role, rows in rows_by("role", rewarded).items():
        name = f"reply_tokens{OF}{role}"
        for row in rows:
            reward = reward_of[row["rollout_id"]]
            if reward is not None:
                yield f"reward{OF}{role}", reward
            yield name, float(row["num_sampled_tokens"])
        if first.get(name):
            mean = math.fsum(row["num_sampled_tokens"] for row in rows) / len(rows)
            yield f"reply_ratio{OF}{role}", mean / first[name]


def untrained(*, num_steps: int) -> Measured:
    """Yield the number of consecutive steps in which no rollout of a player had an advantage."""
    yield "untrained", float(num_steps)


def survivors(
    chosen: list[Choice], *, passed: Collection[str] = (), first: float | None = None
) -> Measured:
    """Yield 1 for a candidate that a filter let through, else 0; and the share let through, divided
    by the share `first`.

    A candidate dropped for a reason in `passed` was let through, but was not needed.
    """
    kept = [float(row["kept"] or row["reason"] in passed) for row in chosen]
    yield from (("kept", value) for value in kept)
    if first and kept:
        yield "kept_ratio", math.fsum(kept) / len(kept) / first


def repeated(tasks: list[Text], earlier: list[Text]) -> Measured:
    """Yield 1 for a task that repeats one of an earlier iteration word for word, else 0; skip
    unreadable tasks."""
    known = {tuple(row["text"].split()) for row in earlier if row["text"] is not None}
    for row in tasks:
        if row["text"] is not None:
            yield "repeat_of_earlier", float(tuple(row["text"].split()) in known)


def components_share(advantages: list[Advantage], *, parts: Mapping[str, float]) -> Measured:
    """Yield each weighted part's share of the sum of the variances of a reward's parts, and the
    largest share as `largest_part`."""
    rows = [row["components"] for row in advantages if row["reward"] is not None]
    spreads = {
        part: weight**2 * _variance([row.get(part, 0.0) for row in rows])
        for part, weight in parts.items()
    }
    if whole := math.fsum(spreads.values()):
        yield from ((f"part{OF}{part}", spread / whole) for part, spread in spreads.items())
        yield "largest_part", max(spreads.values()) / whole


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / max(1, len(values))
    return math.fsum((v - mean) ** 2 for v in values)


Scored = Sequence[float | None]  # a mean and its standard error
# Standard errors of a difference. A fall is measured from the highest of all earlier scores, a
# narrowing from the score before.
FALL = 3.0
NARROWING = 2.0


def held_out_course(
    *, held_out: Mapping[str, Sequence[Scored]], passes: Mapping[str, Sequence[Scored]]
) -> Measured:
    """Count the iterations in which a held-out score was below its best earlier one, and those in
    which pass@k (`passes`, at the largest k) fell while the score rose.

    Both arguments map benchmarks to the mean and standard error of every iteration, from the base
    model on. Only falls of more than `FALL` standard errors of the difference count, and of pass@k
    those of more than `NARROWING`.
    """
    for benchmark, scores in held_out.items():
        falls = sum(_falls(score, scores[:t]) for t, score in enumerate(scores))
        yield f"falls{OF}{benchmark}", float(falls)
        several = passes.get(benchmark, ())
        steps = range(1, min(len(scores), len(several)))
        if several:
            narrower = (
                _is_below(scores[t - 1], scores[t], 0.0)
                and _is_below(several[t], several[t - 1], NARROWING)
                for t in steps
            )
            yield f"narrowings{OF}{benchmark}", float(sum(narrower))


def _falls(score: Scored, earlier: Sequence[Scored]) -> bool:
    """Whether a score is below the best of the earlier ones."""
    best = max(earlier, key=_mean_or_lowest, default=(None, None))
    return _is_below(score, best, FALL)


def _mean_or_lowest(score: Scored) -> float:
    mean = score[0]
    return -math.inf if mean is None else mean


def _is_below(score: Scored, other: Scored, num_errors: float) -> bool:
    """Whether a score is below another by more than `num_errors` standard errors of the difference.

    >>> _is_below([0.4, 0.03], [0.5, 0.04], 2.0), _is_below([0.38, 0.03], [0.5, 0.04], 2.0)
    (False, True)
    """
    mean, error = score
    other_mean, other_error = other
    if mean is None or other_mean is None:
        return False
    return mean < other_mean - num_errors * math.hypot(error or 0.0, other_error or 0.0)
