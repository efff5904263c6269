"""From stored matches and votes to rewards: rows of the table `scores`, every part of a reward in a component of its
own."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from flows.spell import rewards
from flows.spell.config import QuestionerSettings, VerifierSettings
from flows.spell.readers import NO_PENALTY
from tasks.prompt import Row
from tasks.read import NOT_SAMPLED
from tasks.score import scored
from warehouse.schemas import Answer, Match, Task, Vote

NOT_ANSWERED = "not answered"


@dataclass(frozen=True)
class Judged:
    """One answer: what the rule and the verifier say, and the responder's reward (eq. 6)."""

    rule: int
    votes: tuple[int | None, ...]
    verdict: int | None
    reward: float | None


def judge(
    answers: list[Answer], matches: list[Match], votes: list[Vote], judged: list[Vote], settings: VerifierSettings
) -> dict[str, Judged]:
    """Every answer by its rollout id. `judged` holds an external judge's votes, which then stand in for the rule's.

    An answer that was not sampled has no reward; one that states nothing has 0.
    """
    rule_of = {m["rollout_id"]: int(m["matched"] or 0) for m in matches}
    rule_of |= {v["rollout_id"]: v["vote"] or 0 for v in judged}
    votes_of = votes_by_answer(votes)
    found = {}
    for answer in answers:
        vote_V = tuple(vote["vote"] for vote in votes_of[answer["rollout_id"]])
        verdict = (rewards.majority(vote_V) if settings.majority_vote else vote_V[0]) if vote_V else None
        rule = rule_of.get(answer["rollout_id"], 0)
        sampled = answer["malformed"] not in NOT_SAMPLED
        reward = rewards.responder(rule, verdict) if sampled else None
        found[answer["rollout_id"]] = Judged(rule, vote_V, verdict, reward)
    return found


def votes_by_answer(votes: list[Vote]) -> dict[str, list[Vote]]:
    found: dict[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        found[vote["rollout_id"]].append(vote)
    return found


def responder_scores(
    answers: list[Answer], matches: list[Match], votes: list[Vote], judged: list[Vote], *, settings: VerifierSettings
) -> Iterator[Row]:
    """Eq. 6 for every answer."""
    found = judge(answers, matches, votes, judged, settings)
    for answer in answers:
        about = found[answer["rollout_id"]]
        parts = {"rule": float(about.rule), "num_votes": float(len(about.votes))}
        if about.verdict is not None:
            parts["verdict"] = float(about.verdict)
        ids = answer["rollout_id"], answer["prompt_id"], answer["task_id"]
        why = None if about.reward is not None else answer["malformed"] or NOT_ANSWERED
        yield scored(*ids, about.reward, parts, score=about.reward, unscorable=why)


def permuted_scores(
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    judged: list[Vote],
    *,
    settings: VerifierSettings,
    seed: int,
) -> Iterator[Row]:
    """A control: the same rewards, those of one question's answers in another order."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in responder_scores(answers, matches, votes, judged, settings=settings):
        groups[row["group_id"]].append(row)
    for group_id, rows in groups.items():
        paid = [row for row in rows if row["total"] is not None]
        totals = [row["total"] for row in paid]
        random.Random(f"{seed} {group_id}").shuffle(totals)
        for row, total in zip(paid, totals, strict=True):
            row["total"] = row["score"] = total
        yield from rows


def verifier_scores(
    answers: list[Answer], matches: list[Match], votes: list[Vote], judged: list[Vote], *, settings: VerifierSettings
) -> Iterator[Row]:
    """Eq. 5 for every vote, in groups of the votes on one answer, with what a group is chosen by (section 3.3)."""
    found = judge(answers, matches, votes, judged, settings)
    for rollout_id, group in votes_by_answer(votes).items():
        vote_V = [vote["vote"] for vote in group]
        decided, share = rewards.majority(vote_V), rewards.majority_share(vote_V)
        parts = {"rule": float(found[rollout_id].rule), "num_votes": float(len(group))}
        if decided is not None and share is not None:
            parts |= {"majority": float(decided), "majority_share": share}
        for vote, reward in zip(group, rewards.verifier(vote_V), strict=True):
            why = "no vote on this answer could be read" if reward is None else None
            if vote["malformed"] in NOT_SAMPLED:
                reward, why = None, vote["malformed"]
            yield scored(vote["judge_rollout_id"], rollout_id, vote["task_id"], reward, parts, unscorable=why)


def questioner_scores(
    tasks: list[Task],
    closed_book: list[Match],
    answers: list[Answer],
    matches: list[Match],
    votes: list[Vote],
    judged: list[Vote],
    *,
    settings: QuestionerSettings,
    verifier: VerifierSettings,
) -> Iterator[Row]:
    """Eq. 7 for every question. Dropped without penalty: `NO_PENALTY`, what was not sampled, prompts over the limit."""
    found = judge(answers, matches, votes, judged, verifier)
    answers_of: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        answers_of[answer["task_id"]].append(answer)
    ungrounded = {m["task_id"] for m in closed_book if m["matched"]}
    for task in tasks:
        given, is_ungrounded = answers_of[task["task_id"]], task["task_id"] in ungrounded
        reward_G = [found[a["rollout_id"]].reward for a in given]
        r_bar = rewards.mean_reward(reward_G)
        parts = {
            "well_formed": float(task["malformed"] is None),
            "grounded": float(task["malformed"] is None and not is_ungrounded),
            "num_answers": float(sum(r is not None for r in reward_G)),
            "num_right": float(sum(r or 0 for r in reward_G)),
        }
        if r_bar is not None:
            parts["r_bar"] = r_bar
        total, why = _questioner_reward(task, is_ungrounded, given, r_bar, settings)
        group = task["task_type"] if settings.advantage_per_type else task["prompt_id"]
        yield scored(task["task_id"], group or "", task["task_id"], total, parts, score=r_bar, unscorable=why)


def _questioner_reward(
    task: Task, ungrounded: bool, answers: list[Answer], r_bar: float | None, settings: QuestionerSettings
) -> tuple[float | None, str | None]:
    malformed = task["malformed"]
    if malformed in NO_PENALTY or malformed in NOT_SAMPLED or (malformed and not settings.format_penalty):
        return None, malformed
    if malformed:
        return rewards.MALFORMED, None
    if ungrounded:
        return rewards.UNGROUNDED, None
    if r_bar is None:
        return None, next((a["malformed"] for a in answers if a["malformed"]), NOT_ANSWERED)
    return question_reward(settings)(r_bar), None


def question_reward(settings: QuestionerSettings) -> Callable[[float], float]:
    if settings.reward == "gaussian":
        return partial(rewards.gaussian, sigma=settings.sigma)
    return rewards.absolute_zero if settings.reward == "absolute_zero" else rewards.r_zero
