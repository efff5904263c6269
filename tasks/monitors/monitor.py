"""Monitors: measure what rewards do not show, store it, and stop the run before an update trains on
bad data.

    watch(
        step,
        canary_errors,
        judgments=judged,
        limits=cfg.monitor,
        policy=grader.id,
        benchmark=JUDGE,
    )

Call `watch` before the update. Its metrics are a table like any other. The limit is not part of the
recipe, so a rerun compares the stored value with the current limit: it raises the alarm again, or
goes on if the limit was relaxed.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tasks.evaluate import Measure, evaluate, scores_of
from tasks.monitors.limits import Limits
from tasks.read import NOT_SAMPLED, TOO_LONG, UNANSWERED
from tasks.stage import Tables, as_tables, rows_of
from warehouse.schemas import (
    Advantage,
    Answer,
    Judgment,
    Label,
    Mark,
    OptimizerStep,
    Reward,
    Task,
    Vote,
)
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")

# benchmarks in `evaluations`
JUDGE = "judge monitor"
LABELS = "label monitor"
POOL = "pool monitor"
BATCH = "batch monitor"
UPDATE = "update monitor"
COURSE = "course monitor"

Measured = Iterator[tuple[str, float]]
Truth = Callable[[Task, str], bool | None]  # whether an answer to a task is right; None if unknown
LEAST_LABELS = 8
MOST_REASONS = 3  # maximum number of reasons for unreadable replies in a message
OF = " of "  # a metric named "<metric> of <role or benchmark>" has the limit of <metric>


class Alarm(RuntimeError):
    """A metric is beyond its limit: the run stopped before training on what was measured."""

    def __init__(self, address: str, metric: str, value: float, limit: float, way_out: str) -> None:
        super().__init__(f"{address}: {metric} is {value:.3g}, the limit is {limit:g}. {way_out}")
        self.address = address
        self.metric = metric
        self.value = value
        self.limit = limit


def watch(
    place: Place,
    measure: Measure,
    *,
    limits: Limits,
    policy: str,
    benchmark: str,
    label: str | None = None,
    way_out: str = "",
    **inputs: Any,
) -> dict[str, float]:
    """Store the metrics of `measure`, which gets tables and settings by name as in `evaluate`;
    return their means.

    Raises Alarm for the first metric, in the order of `limits`, that is beyond its limit or is NaN.
    `way_out` tells the user what to do: by default, to look at the rows and change the limit under
    `monitor` in the configuration.
    """
    measured = evaluate(place, measure, policy=policy, benchmark=benchmark, label=label, **inputs)
    scores = scores_of(measured)
    for name, limit in limits:
        for metric, value in scores.items():
            if limit is not None and is_of(metric, name) and is_beyond(name, value, limit):
                advice = (
                    "Look at the rows that it was measured on and fix the cause, or change"
                    f" monitor.{name}."
                )
                raise Alarm(measured.address, metric, value, limit, way_out or advice)
    return scores


def is_of(metric: str, name: str) -> bool:
    """Whether the limit `name` applies to `metric`.

    >>> is_of("reply_ratio of writer", "max_reply_ratio"), is_of("kept", "max_kept_ratio")
    (True, False)
    """
    return metric.partition(OF)[0] == name.partition("_")[2]


def is_beyond(name: str, value: float, limit: float) -> bool:
    """Whether a value is beyond its limit; NaN is beyond any limit.

    >>> (
    ...     is_beyond("max_gap", -0.2, 0.1),
    ...     is_beyond("min_kept", 0.2, 0.1),
    ...     is_beyond("min_kept", float("nan"), 0.1),
    ... )
    (True, False, True)
    """
    return not (abs(value) <= limit if name.startswith("max_") else value >= limit)


def check_pool(
    selections: Tables, target: int, *, allow_short: bool = False, way_out: str = ""
) -> int:
    """Return the number of tasks that the selections keep. Raises Alarm if it is below `target`;
    with `allow_short`, only logs a warning."""
    tables = as_tables(selections)
    num_kept = sum(row["kept"] for row in rows_of(tables))
    if num_kept < target:
        advice = f"{way_out} Selections say why the others were not kept.".lstrip()
        short = Alarm(
            tables[-1].address if tables else "no selections", "num_kept", num_kept, target, advice
        )
        if not allow_short:
            raise short
        log.warning("%s", short)
    return num_kept


def check_replies(replies: Table, limits: Limits, *, attempts: bool = False) -> None:
    """Raise Alarm if too many of the sampled replies are unreadable, if the engine failed on too
    many, or if too many prompts were over the method's limit or longer than the engine's context.

    With `attempts`, further attempts replace unreadable replies, whose number then has no limit.
    """
    reasons = reasons_of(replies)
    sampled = [why for why in reasons if why not in NOT_SAMPLED]
    shares = {
        "max_engine_failure": reasons.count(UNANSWERED["error"]) / max(1, len(reasons)),
        "max_over_limit": reasons.count(TOO_LONG) / max(1, len(reasons)),
    }
    if not attempts:
        shares["max_malformed"] = sum(why is not None for why in sampled) / max(1, len(sampled))
    for name, share in shares.items():
        limit = getattr(limits, name)
        if limit is not None and is_beyond(name, share, limit):
            changes = f"monitor.{name}"
            if name == "max_over_limit":
                changes = f"engine.max_model_len, the method's own limit or {changes}"
            way_out = (
                f"{_most_frequent(reasons)}. Fix the cause, or change {changes}."
                f" `selfplay view {replies.at.run}` shows the replies."
            )
            raise Alarm(replies.address, name.removeprefix("max_"), share, limit, way_out)


def reasons_of(replies: Table) -> list[str | None]:
    """Why each reply could not be read; None for one that could. A reply that was read into several
    rows, such as a rubric's criteria, has one entry."""
    parsed = replies.schema.parsed
    assert parsed is not None, f"{replies.schema.name} holds no replies"
    reason_of: dict[str, str | None] = {}
    columns = (replies.arrow[name].to_pylist() for name in (parsed.rollout, "malformed"))
    for rollout_id, malformed in zip(*columns, strict=True):
        reason_of[rollout_id] = reason_of.get(rollout_id) or malformed
    return list(reason_of.values())


def _most_frequent(reasons: list[str | None]) -> str:
    """Why most replies could not be read.

    >>> _most_frequent(["no question", None, "no answer", "no question"])
    'Of 4 replies: no question 2, no answer 1'
    """
    counts = Counter(why for why in reasons if why is not None)
    numbers = ", ".join(f"{why} {number}" for why, number in counts.most_common(MOST_REASONS))
    return f"Of {len(reasons)} replies: {numbers}"


def canary_errors(judgments: list[Judgment], first: Sequence[Judgment] = ()) -> Measured:
    """Yield 1 for a canary (an answer whose verdict is known) that was judged wrongly or
    unreadably, else 0; and the rise of that share since the `first` canaries. No judge of real
    texts is without error, but one that is gamed gets worse."""
    for row in judgments:
        if row["expected"] is not None:
            yield "canary_error", _misjudged(row)
            yield "false_fail" if row["expected"] else "false_pass", _misjudged(row)
    now, then = (
        [_misjudged(row) for row in rows if row["expected"] is not None]
        for rows in (judgments, first)
    )
    if now and then:
        yield "canary_rise", max(0.0, math.fsum(now) / len(now) - math.fsum(then) / len(then))


def _misjudged(canary: Judgment) -> float:
    return float(canary["verdict"] != canary["expected"])


def judge_gap(judgments: list[Judgment]) -> Measured:
    """Yield verdict minus truth, and whether they differ, for every judgment that has both."""
    for row in judgments:
        if row["verdict"] is not None and row["oracle"] is not None:
            yield "judge_minus_oracle", float(row["verdict"] - row["oracle"])
            yield "judge_error", float(row["verdict"] != row["oracle"])


def vote_gap(
    votes: list[Vote], answers: list[Answer], tasks: list[Task], *, oracle: Truth
) -> Measured:
    """Yield the same as `judge_gap` for a judge's votes, where `oracle` can tell whether an answer
    is right."""
    truth_of = truths(answers, tasks, oracle)
    for row in votes:
        vote = row["vote"]
        truth = truth_of.get(row["rollout_id"])
        if vote is not None and truth is not None:
            yield "vote_minus_oracle", float(vote - truth)
            yield "vote_error", float(vote != truth)


def truths(answers: list[Answer], tasks: list[Task], oracle: Truth) -> dict[str, bool | None]:
    """Whether each readable answer is right, by rollout id; None if `oracle` cannot tell."""
    task_of = {row["task_id"]: row for row in tasks if row["text"] is not None}
    answered = ((row["rollout_id"], task_of.get(row["task_id"]), row["answer"]) for row in answers)
    return {
        rollout_id: oracle(task, answer)
        for rollout_id, task, answer in answered
        if task and answer is not None
    }


def reward_gap(
    rewards: list[Reward], answers: list[Answer], tasks: list[Task], *, oracle: Truth
) -> Measured:
    """Yield each answer's score minus the truth, the absolute difference, and the scores of wrong
    answers."""
    truth_of = truths(answers, tasks, oracle)
    for row in rewards:
        score = row["score"]
        truth = truth_of.get(row["rollout_id"])
        if score is not None and truth is not None:
            yield "reward_minus_oracle", score - truth
            yield "reward_error", abs(score - truth)
            if not truth:
                yield "reward_of_wrong", score


def reference_errors(tasks: list[Task], *, oracle: Truth) -> Measured:
    """Yield 1 for a task whose reference is wrong, else 0, if `oracle` can tell."""
    for row in tasks:
        if row["text"] is not None and row["reference"] is not None:
            truth = oracle(row, row["reference"])
            if truth is not None:
                yield "reference_error", float(not truth)


def marks_given(marks: list[Mark]) -> Measured:
    """Yield each readable mark, and 1 if it is the highest possible, else 0."""
    for row in marks:
        if row["mark"] is not None:
            yield "mark", row["mark"]
            yield "top_mark", float(row["mark"] >= 1)


def mark_errors(
    marks: list[Mark], answers: list[Answer], tasks: list[Task], *, oracle: Truth
) -> Measured:
    """Yield 1 if a right answer is marked below the middle or a wrong one is not, else 0; and the
    marks of right and of wrong answers."""
    truth_of = truths(answers, tasks, oracle)
    for row in marks:
        mark = row["mark"]
        truth = truth_of.get(row["rollout_id"] or "")
        if mark is not None and truth is not None:
            yield "mark_error", float((mark >= 0.5) != truth)
            yield "mark_of_right" if truth else "mark_of_wrong", mark


def tasks_written(tasks: list[Task]) -> Measured:
    """Yield 1 for a task of fewer than three different words, else 0; and 1 for a word-for-word
    repeat, else 0."""
    texts = [tuple(row["text"].split()) for row in tasks if row["text"] is not None]
    for i, words in enumerate(texts):
        yield "empty", float(len(set(words)) < 3)
        yield "copy", float(words in texts[:i])


def label_errors(labels: list[Label], tasks: list[Task], *, oracle: Truth) -> Measured:
    """Yield 1 for a wrong label, else 0, if `oracle` can tell; and the share of answers behind
    each label."""
    task_of = {row["task_id"]: row for row in tasks}
    for row in labels:
        task = task_of[row["task_id"]]
        label = row["answer"]
        if task["text"] is not None and label is not None:
            yield "label_share", row["num_agreeing"] / row["num_readable"]
            truth = oracle(task, label)
            if truth is not None:
                yield "label_error", float(not truth)


def same_labels(labels: list[Label]) -> Measured:
    """Yield 1 for a label that equals the most frequent one, apart from case and punctuation, else
    0.

    A policy that is rewarded for agreeing with itself can learn to give the same answer to every
    question. With fewer than `LEAST_LABELS` labels, many may be equal by chance: yield nothing.
    """
    texts = [
        " ".join(re.findall(r"\w+", row["answer"].casefold()))
        for row in labels
        if row["answer"] is not None
    ]
    if len(texts) < LEAST_LABELS:
        return
    ((most_frequent, _),) = Counter(texts).most_common(1)
    for text in texts:
        yield "same_label", float(text == most_frequent)


def contrast(advantages: list[Advantage]) -> Measured:
    """Yield 1 for a rewarded group without any advantage (it carries no signal), else 0; the
    rewards; and 1 for an unscorable row, else 0."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in advantages:
        yield "unscorable", float(row["reward"] is None)
        if row["reward"] is not None:
            groups[row["group_id"]].append(row["advantage"])
            yield "reward", row["reward"]
    for group in groups.values():
        yield "flat_group", float(not any(group))


def sampler_mismatch(updates: list[OptimizerStep]) -> Measured:
    """Yield how far the trainer's policy was from that of the sampling engine before an update's
    first optimizer step."""
    for row in updates:
        if row["optimizer_step"] == 0:
            if "sampler_kl" in row["metrics"]:
                yield "sampler_kl", row["metrics"]["sampler_kl"]
            if "mean_ratio" in row["metrics"]:
                yield "ratio_gap", row["metrics"]["mean_ratio"] - 1.0
