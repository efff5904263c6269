"""Whether a run will learn, in plain words, judging by its pilot's measurements.

A verdict names the number that it is based on and what to change. The bounds are rules of thumb: a
model whose replies can be read and whose rewards differ within groups learns something; whether it
learns what its judge intends, only the truth, an auditor or a held-out score can say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flows.pilot.signals import FilterSignal, RewardSignal, RoleSignal, Signals
from tasks.reports.percent import percent

Outlook = Literal["will learn", "weak signal", "no signal"]
ORDER: tuple[Outlook, ...] = ("will learn", "weak signal", "no signal")

LEAST_READABLE = 0.1  # of a role's replies: below it, what is read is due to chance
FEW_READABLE = 0.3
FEW_GROUPS = 8  # with contrast, in an update: below it, one odd group dominates the update
LEAST_CONTRAST = 0.05  # of a role's groups
LEAST_PASSED = 0.02  # of a filter's candidates
FEW_PASSED = 0.1
FEW_AGREE = 0.6  # of the pairs of a judge's votes on one answer; 0.5 is chance
MANY_CUT_OFF = 0.5  # of a role's replies
BETTER_REPLIES = "Add worked examples to the prompt, or use a larger model."
OTHER_QUESTIONS = "Let a stronger model write the questions."
STRONGER_JUDGE = "Use a stronger judge, or an answer that a rule can compare."
AT_CHANCE = "rewards_at_chance"  # the finding that rewards have little to do with the truth
MISJUDGED = "canaries_misjudged"  # the finding that a judge errs on answers with known verdicts
MANY_MISJUDGED = 0.4  # of these answers; 0.5 is chance
ENOUGH_TASKS = 2  # with contrast, in an update: a run can learn from few tasks if they are right


@dataclass(frozen=True)
class Reason:
    """Why a run will learn little or nothing: a number, and what to change."""

    outlook: Outlook
    problem: str
    advice: str


@dataclass(frozen=True)
class Verdict:
    """The worst outlook of all reasons, or "will learn" if there are none."""

    outlook: Outlook
    reasons: tuple[Reason, ...]

    @property
    def advice(self) -> list[str]:
        """The changes to make, most urgent first, without repeats."""
        return list(dict.fromkeys(reason.advice for reason in self.reasons))

    @property
    def sentence(self) -> str:
        """The outlook, and the problems that it is based on."""
        if not self.reasons:
            return "will learn: replies of every role can be read, and rewards differ within groups"
        worst = [reason.problem for reason in self.reasons if reason.outlook == self.outlook]
        return f"{self.outlook}, because {'; and '.join(worst)}"


def judge(signals: Signals) -> Verdict:
    """The verdict on a pilot's signals, with its reasons, the worst first."""
    reasons = sorted(_reasons(signals), key=lambda reason: -ORDER.index(reason.outlook))
    outlook = reasons[0].outlook if reasons else "will learn"
    return Verdict(outlook, tuple(reasons))


def _reasons(signals: Signals) -> Iterator[Reason]:
    notes = signals.notes
    if notes.stopped:
        problem = f"the run would stop: {notes.stopped.rstrip('.')}"
        yield Reason("no signal", problem, _advice_of(signals))
    for alarm in notes.alarms:
        yield Reason(
            "no signal",
            f"an alarm would stop the run before an update: {alarm}",
            "Fix the cause before you raise the limit.",
        )
    for role in signals.roles:
        yield from _unreadable(role, _has_tasks(signals))
    for each in signals.filters:
        yield from _strict(each)
    for reward in signals.rewards:
        yield from _without_contrast(reward)
    if not signals.rewards and not notes.stopped:
        yield Reason(
            "no signal",
            "no rollout has a reward",
            "Look at what the filters kept, and at the replies.",
        )
    if signals.agreement is not None and signals.agreement < FEW_AGREE:
        yield Reason(
            "weak signal",
            f"two votes of a judge on one answer agree in {percent(signals.agreement)} of cases,"
            " and 50% is chance",
            STRONGER_JUDGE,
        )
    if signals.caution:
        yield Reason("weak signal", signals.caution, OTHER_QUESTIONS)
    for finding in signals.findings:
        problem = finding.sentence[0].lower() + finding.sentence[1:].rstrip(".")
        is_misjudged = finding.rule == MISJUDGED and (finding.number or 0.0) >= MANY_MISJUDGED
        if finding.rule == AT_CHANCE or is_misjudged:
            yield Reason("no signal", problem, STRONGER_JUDGE)
        else:
            yield Reason("weak signal", problem, "`selfplay findings` shows its rows.")


def _has_tasks(signals: Signals) -> bool:
    """Whether an update has something to compare; if so, few readable replies do not matter.

    For example, a model of 135M parameters learnt to answer as well as with its best prompt
    although only 8 to 21 % of its questions about manual pages could be read, with 1 to 6 tasks
    kept per step.
    """
    return any(reward.num_with_contrast >= ENOUGH_TASKS for reward in signals.rewards)


def _unreadable(role: RoleSignal, has_tasks: bool) -> Iterator[Reason]:
    if role.readable >= FEW_READABLE:
        return
    reason = next(iter(role.reasons), "no reason")
    advice = BETTER_REPLIES
    if role.cut_off > MANY_CUT_OFF:
        advice = "Replies are cut off: raise the token limit of this role's replies."
    outlook: Outlook = "weak signal"
    if role.readable < LEAST_READABLE and not has_tasks:
        outlook = "no signal"
    yield Reason(
        outlook,
        f"{percent(role.readable)} of {role.num_replies} replies of the {role.name} can be read"
        f" (most frequent reason: {reason})",
        advice,
    )


def _strict(each: FilterSignal) -> Iterator[Reason]:
    passed = each.num_passed / each.num_candidates
    if passed >= FEW_PASSED:
        return
    outlook: Outlook = "weak signal"
    if passed < LEAST_PASSED:
        outlook = "no signal"
    most = max(each.reasons, key=lambda reason: each.reasons[reason])
    yield Reason(
        outlook,
        f"{each.num_passed} of {each.num_candidates} candidates pass the filter {each.name}"
        f" (most frequent reason: {most})",
        "Use a stronger model or questioner, which may write tasks within the difficulty window."
        " `selfplay whatif` shows what another window would keep.",
    )


def _without_contrast(reward: RewardSignal) -> Iterator[Reason]:
    share = reward.num_with_contrast / reward.num_groups
    if not reward.num_with_contrast or share < LEAST_CONTRAST:
        yield Reason(
            "no signal",
            f"rewards of the {reward.role} differ in {reward.num_with_contrast} of"
            f" {reward.num_groups} groups",
            "Sample more answers per task (group_size), or use tasks that are neither too hard nor"
            " too easy.",
        )
    elif reward.num_groups >= FEW_GROUPS > reward.num_with_contrast:
        yield Reason(
            "weak signal",
            f"rewards of the {reward.role} differ in only {reward.num_with_contrast} of"
            f" {reward.num_groups} groups",
            "Sample more tasks per step.",
        )


def _advice_of(signals: Signals) -> str:
    role = min(signals.roles, key=lambda each: each.readable, default=None)
    if role is None or role.readable >= FEW_READABLE:
        return "The message says where to look."
    return BETTER_REPLIES
