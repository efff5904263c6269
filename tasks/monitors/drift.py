"""Measures of a run's course: training data compared with the first iteration, rewards with
held-out scores.

`tasks.monitors.monitor.watch` takes them; `tasks.monitors.limits` holds the limits that all methods
share.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypedDict

from tasks.monitors.monitor import OF, Measured, contrast
from tasks.stage import rows_by
from warehouse.schemas import Advantage

FALL = 2.0  # a fall is a drop by more than this many standard errors


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
    tokens, and the ratio of its mean to that in `first`."""
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
    """Yield the number of steps in a row in which no rollout of a player had an advantage."""
    yield "untrained", float(num_steps)


def survivors(
    chosen: list[Choice], *, passed: Collection[str] = (), first: float | None = None
) -> Measured:
    """Yield 1 for a candidate that a filter let through, else 0; and the share let through over the
    share `first`.
    A candidate dropped for a reason in `passed` was let through, but not needed."""
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
    """Yield the share of each weighted part of a reward in the sum of the parts' variances, and the
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


def divergence(
    *,
    held_out: Mapping[str, Sequence[Scored]],
    rewards: Sequence[float | None],
    passes: Mapping[str, Sequence[Scored]],
) -> Measured:
    """Count how often a held-out score fell while the training reward rose, and how often pass@k
    (`passes`, at the largest k) fell while the score rose.

    `held_out` and `passes` give, by benchmark, the mean and standard error of every iteration from
    the first on; `rewards` gives the mean of every iteration but the first, None for one without
    rewards, which is compared with none. A fall exceeds `FALL` standard errors of the difference.
    """
    for benchmark, scores in held_out.items():
        steps = range(2, min(len(scores), len(rewards) + 1))
        yield (
            f"falls{OF}{benchmark}",
            float(sum(_rose(rewards, t) and _fell(scores, t) for t in steps)),
        )
        several = passes.get(benchmark, ())
        steps = range(1, min(len(scores), len(several)))
        if several:
            narrower = (_higher(scores, t) and _fell(several, t) for t in steps)
            yield f"narrowings{OF}{benchmark}", float(sum(narrower))


def _rose(rewards: Sequence[float | None], t: int) -> bool:
    before = rewards[t - 2]
    now = rewards[t - 1]
    return before is not None and now is not None and now > before


def _higher(scores: Sequence[Scored], t: int) -> bool:
    before, _ = scores[t - 1]
    now, _ = scores[t]
    return before is not None and now is not None and now > before


def _fell(scores: Sequence[Scored], t: int) -> bool:
    before, error = scores[t - 1]
    now, its_error = scores[t]
    if before is None or now is None:
        return False
    return now < before - FALL * math.hypot(error or 0.0, its_error or 0.0)
