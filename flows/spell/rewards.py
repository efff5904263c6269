"""SPELL's rewards, each a pure function of one group, and the rows of `scores` made from them, where every part of a
reward is a component. Equation numbers are those of the paper (appendix E for 12).

Suffixes: V votes on an answer, G answers to a question. `None` is a vote that could not be read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from flows.frontier import RIVALS
from flows.spell.config import QuestionerSettings
from flows.spell.readers import NO_PENALTY
from tasks.read import NOT_SAMPLED
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Row, Score, Task, Vote

MALFORMED, UNGROUNDED = -1.0, -0.5  # eq. 7
UNREAD_VOTE = -1.0


def majority(vote_V: Sequence[int | None]) -> int | None:
    """Eq. 4: 1 if more than half of all votes, readable or not, say yes, else 0; None if no vote is readable.

    >>> majority([1, 1, 1, 0]), majority([1, 1, 0, 0]), majority([1, 1, None, None]), majority([None, None])
    (1, 0, 0, None)
    """
    if all(vote is None for vote in vote_V):
        return None
    return int(2 * sum(vote or 0 for vote in vote_V) > len(vote_V))


def majority_share(vote_V: Sequence[int | None]) -> float | None:
    """The share of readable votes that equal the majority.

    >>> majority_share([1, 1, 1, 0]), majority_share([1, 0, None, None]), majority_share([None])
    (0.75, 0.5, None)
    """
    decided, read = majority(vote_V), [vote for vote in vote_V if vote is not None]
    return sum(vote == decided for vote in read) / len(read) if read else None


def verifier(vote_V: Sequence[int | None]) -> list[float | None]:
    """Eq. 5: 1 for agreeing with the majority, else 0; -1 for an unreadable vote. None for all if none is readable.

    >>> verifier([1, 1, 0, None])
    [0.0, 0.0, 1.0, -1.0]
    """
    decided = majority(vote_V)
    if decided is None:
        return [None] * len(vote_V)
    return [UNREAD_VOTE if vote is None else float(vote == decided) for vote in vote_V]


def responder(rule: int, verdict: int | None) -> float:
    """Eq. 6: 1 if the rule or the verifier accepts; if the verifier has no verdict, the rule alone decides.

    >>> responder(0, 1), responder(1, 0), responder(0, None)
    (1.0, 1.0, 0.0)
    """
    return float(max(rule, verdict or 0))


def gaussian(r_bar: float, sigma: float = 0.5 / 3) -> float:
    """Eq. 7: highest for questions answered rightly half the time; 0 if all or none are right.

    >>> [round(gaussian(k / 8), 4) for k in (0, 1, 2, 3, 4, 8)]
    [0.0, 0.0796, 0.3247, 0.7548, 1.0, 0.0]
    """
    return math.exp(-((r_bar - 0.5) ** 2) / (2 * sigma**2)) if 0 < r_bar < 1 else 0.0


def responder_scores(
    answers: list[Answer], matches: list[Match], votes: list[Vote], judged: list[Vote], *, majority_vote: bool
) -> Iterator[Row]:
    """Eq. 6 for every answer. `judged` holds an external judge's votes, which replace the rule's.

    A malformed answer earns 0.
    """
    rule_of = {m["rollout_id"]: int(m["matched"] or 0) for m in matches}
    rule_of |= {v["rollout_id"]: v["vote"] or 0 for v in judged}
    votes_on = rows_by("rollout_id", votes)
    for answer in answers:
        vote_V = [vote["vote"] for vote in votes_on[answer["rollout_id"]]]
        verdict = (majority(vote_V) if majority_vote else vote_V[0]) if vote_V else None
        rule = rule_of.get(answer["rollout_id"], 0)
        parts = {"rule": float(rule), "num_votes": float(len(vote_V))}
        if verdict is not None:
            parts["verdict"] = float(verdict)
        reward = responder(rule, verdict)
        yield scored(answer, reward, parts, score=reward)


def verifier_scores(votes: list[Vote], responded: list[Score]) -> Iterator[Row]:
    """Eq. 5 for every vote, grouped by answer, with the measures by which groups are chosen (section 3.3)."""
    rule_of = {row["rollout_id"]: row["components"]["rule"] for row in responded}
    for rollout_id, group in rows_by("rollout_id", votes).items():
        vote_V = [vote["vote"] for vote in group]
        decided, share = majority(vote_V), majority_share(vote_V)
        parts = {"rule": rule_of[rollout_id], "num_votes": float(len(group))}
        if decided is not None and share is not None:
            parts |= {"majority": float(decided), "majority_share": share}
        why = "no vote on this answer could be read" if decided is None else None
        for vote, reward in zip(group, verifier(vote_V), strict=True):
            yield scored(vote, reward, parts, group=rollout_id, unscorable=why)


def questioner_scores(
    tasks: list[Task],
    closed_book: list[Match],
    answers: list[Answer],
    responded: list[Score],
    *,
    settings: QuestionerSettings,
) -> Iterator[Row]:
    """Eq. 7 for every question. Dropped without penalty: `NO_PENALTY`, what was not sampled, prompts over the limit."""
    answers_of, responded_of = rows_by("task_id", answers), rows_by("task_id", responded)
    ungrounded = {m["task_id"] for m in closed_book if m["matched"]}
    for task in tasks:
        given, is_ungrounded = answers_of[task["task_id"]], task["task_id"] in ungrounded
        reward_G = [row["total"] for row in responded_of[task["task_id"]]]
        r_bar = mean_of(reward_G)
        parts = {
            "well_formed": float(task["malformed"] is None),
            "grounded": float(task["malformed"] is None and not is_ungrounded),
            "num_answers": float(sum(r is not None for r in reward_G)),
            "num_right": float(sum(r or 0 for r in reward_G)),
            "num_readable": float(sum(answer["answer"] is not None for answer in given)),
        }
        if r_bar is not None:
            parts["r_bar"] = r_bar
        total, why = _questioner_reward(task, is_ungrounded, given, r_bar, settings)
        group = task["task_type"] if settings.advantage_per_type else None
        yield scored(task, total, parts, group=group, score=r_bar, unscorable=why)


def _questioner_reward(
    task: Task, ungrounded: bool, answers: list[Answer], r_bar: float | None, settings: QuestionerSettings
) -> tuple[float | None, str | None]:
    malformed = task["malformed"]
    if malformed in NO_PENALTY or malformed in NOT_SAMPLED or (malformed and not settings.format_penalty):
        return None, malformed
    if malformed:
        return MALFORMED, None
    if ungrounded:
        return UNGROUNDED, None
    if r_bar is None:
        return None, next((a["malformed"] for a in answers if a["malformed"]), "not answered")
    if settings.reward == "gaussian":
        return gaussian(r_bar, settings.sigma), None
    return RIVALS[settings.reward](r_bar), None
