"""SPELL's rewards, and the rows of `rewards` made from them.

A function named `*_reward` computes one of the paper's equations from the values of one group; one
named `*_rewards` yields a row for each reply of a role, with every part of the reward as a
component. Equation numbers are the paper's (eq. 12 is in appendix E).

Suffixes: V votes on an answer, G answers to a question. `None` is a vote that could not be read;
one that was never sampled is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flows.blocks.difficulty_reward import RIVALS
from flows.spell.config import QuestionerSettings
from flows.spell.readers import NO_PENALTY
from tasks.read import NOT_SAMPLED, sampled
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Reward, Row, Task, Vote

MALFORMED = -1.0  # eq. 7
UNGROUNDED = -0.5  # eq. 7: answered rightly without the documents
UNREAD_VOTE = -1.0


# ---- the verifier ----


def majority(vote_V: Sequence[int | None]) -> int | None:
    """Eq. 4: 1 if more than half of all votes, readable or not, say yes, else 0.

    None if no vote is readable.

    >>> majority([1, 1, 1, 0]), majority([1, 1, 0, 0])
    (1, 0)
    >>> majority([1, 1, None, None]), majority([None, None])
    (0, None)
    """
    if all(vote is None for vote in vote_V):
        return None
    return int(2 * sum(vote or 0 for vote in vote_V) > len(vote_V))


def majority_share(vote_V: Sequence[int | None]) -> float | None:
    """The share of readable votes that equal the majority; None if no vote is readable.

    >>> majority_share([1, 1, 1, 0]), majority_share([1, 0, None, None]), majority_share([None])
    (0.75, 0.5, None)
    """
    readable = [vote for vote in vote_V if vote is not None]
    if not readable:
        return None
    verdict = majority(vote_V)
    return sum(vote == verdict for vote in readable) / len(readable)


def verifier_reward(vote: int | None, verdict: int) -> float:
    """Eq. 5: 1 for a vote that agrees with the majority's verdict, else 0.

    A vote that could not be read gets -1.

    >>> verifier_reward(1, 1), verifier_reward(0, 1), verifier_reward(None, 1)
    (1.0, 0.0, -1.0)
    """
    if vote is None:
        return UNREAD_VOTE
    return float(vote == verdict)


def verifier_rewards(votes: list[Vote], responded: list[Reward]) -> Iterator[Row]:
    """Eq. 5 for every vote, grouped by the answer that it judges.

    The components hold the measures by which groups are chosen (section 3.3). If none of an
    answer's votes is readable, all of them are unscorable.
    """
    rule_of = {row["rollout_id"]: row["components"]["rule"] for row in responded}
    for rollout_id, group in rows_by("rollout_id", votes).items():
        vote_V = [vote["vote"] for vote in sampled(group)]
        verdict = majority(vote_V)
        share = majority_share(vote_V)
        components = {"rule": rule_of[rollout_id], "num_votes": float(len(group))}
        if verdict is None or share is None:
            why = "no vote on this answer could be read"
            for vote in group:
                yield scored(vote, None, components, group=rollout_id, unscorable=why)
            continue
        components |= {"majority": float(verdict), "majority_share": share}
        for vote in group:
            reward = verifier_reward(vote["vote"], verdict)
            yield scored(vote, reward, components, group=rollout_id)


# ---- the responder ----


def responder_reward(rule: int, verdict: int | None) -> float:
    """Eq. 6: 1 if the rule or the verifier accepts the answer.

    If the verifier has no verdict (None), the rule alone decides.

    >>> responder_reward(0, 1), responder_reward(1, 0), responder_reward(0, None)
    (1.0, 1.0, 0.0)
    """
    return float(max(rule, verdict or 0))


def responder_rewards(
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    judged: list[Vote],
    *,
    majority_vote: bool,
) -> Iterator[Row]:
    """Eq. 6 for every answer; a malformed answer earns 0.

    `judged` holds an external judge's votes, which replace the rule's matches except where the
    judge gave no reply. Without `majority_vote`, the first vote is the verdict.
    """
    rule_of = {match["rollout_id"]: int(match["matched"] or 0) for match in matches}
    rule_of |= {vote["rollout_id"]: vote["vote"] or 0 for vote in sampled(judged)}
    votes_on = rows_by("rollout_id", votes)
    for answer in answers:
        group = votes_on[answer["rollout_id"]]
        vote_V = [vote["vote"] for vote in sampled(group)]
        verdict = majority(vote_V)
        if vote_V and not majority_vote:
            verdict = vote_V[0]
        rule = rule_of.get(answer["rollout_id"], 0)
        components = {"rule": float(rule), "num_votes": float(len(group))}
        if verdict is not None:
            components["verdict"] = float(verdict)
        reward = responder_reward(rule, verdict)
        yield scored(answer, reward, components, score=reward)


# ---- the questioner ----


def gaussian_reward(r_bar: float, sigma: float = 0.5 / 3) -> float:
    """Eq. 7: highest for questions answered rightly half the time; 0 if all or none are right.

    >>> [round(gaussian_reward(k / 8), 4) for k in (0, 1, 2, 3, 4, 8)]
    [0.0, 0.0796, 0.3247, 0.7548, 1.0, 0.0]
    """
    if not 0 < r_bar < 1:
        return 0.0
    return math.exp(-((r_bar - 0.5) ** 2) / (2 * sigma**2))


def questioner_reward(r_bar: float, settings: QuestionerSettings) -> float:
    """The reward of a usable question whose answers earned `r_bar` on average: eq. 7 or a rival."""
    if settings.reward == "gaussian":
        return gaussian_reward(r_bar, settings.sigma)
    return RIVALS[settings.reward](r_bar)


def questioner_rewards(
    tasks: list[Task],
    closed_book: list[Match],
    answers: list[Answer],
    responded: list[Reward],
    *,
    settings: QuestionerSettings,
) -> Iterator[Row]:
    """Eq. 7 for every question.

    A question is unscorable, and dropped without penalty, for the reasons in `NO_PENALTY`, if it
    was not sampled, or if its prompt is over the limit.
    """
    answers_of = rows_by("task_id", answers)
    responded_of = rows_by("task_id", responded)
    ungrounded = {match["task_id"] for match in closed_book if match["matched"]}
    for task in tasks:
        task_answers = answers_of[task["task_id"]]
        reward_G = [row["reward"] for row in responded_of[task["task_id"]]]
        r_bar = mean_of(reward_G)
        is_well_formed = task["malformed"] is None
        is_ungrounded = task["task_id"] in ungrounded
        components = {
            "well_formed": float(is_well_formed),
            "grounded": float(is_well_formed and not is_ungrounded),
            "num_answers": float(sum(reward is not None for reward in reward_G)),
            "num_right": float(sum(reward or 0 for reward in reward_G)),
            "num_readable": float(sum(answer["answer"] is not None for answer in task_answers)),
        }
        if r_bar is not None:
            components["r_bar"] = r_bar
        reward = None
        why = None
        if not is_well_formed:
            why = _dropped_without_penalty(task, settings)
            reward = MALFORMED
        elif is_ungrounded:
            reward = UNGROUNDED
        elif r_bar is None:
            why = _not_answered(task_answers)
        else:
            reward = questioner_reward(r_bar, settings)
        group = None  # compared with all questions of the batch
        if settings.advantage_per_type:
            group = task["task_type"]
        yield scored(task, reward, components, group=group, score=r_bar, unscorable=why)


def _dropped_without_penalty(task: Task, settings: QuestionerSettings) -> str | None:
    """Why a malformed question is not penalised; None if it is."""
    reason = task["malformed"]
    if reason in NO_PENALTY or reason in NOT_SAMPLED or not settings.format_penalty:
        return reason
    return None


def _not_answered(answers: list[Answer]) -> str:
    """Why a question has no rewarded answer."""
    reasons = (answer["malformed"] for answer in answers if answer["malformed"])
    return next(reasons, "not answered")
