"""SPICE's rewards. Equation numbers are those of arXiv 2510.24684.

A reward of the Challenger is a pure function of a question's pass rate, the share of its answers
that are right. `challenger_rewards` and `reasoner_rewards` make the rows of `rewards`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from flows.blocks.difficulty_reward import RIVALS
from flows.blocks.questions import answer_rewards, correctness
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Row, Selection, Task

BEST_VARIANCE = 0.25  # eq. 1 and 5: the variance if half of the answers are right
TEMPERATURE = 0.01  # eq. 1 and 5


def variance_reward(pass_rate: float) -> float:
    """Eq. 1: a bell over the variance p(1 - p) of the answers' correctness.

    It is 1 if half of them are right.

    >>> [round(variance_reward(n / 8), 4) for n in (0, 1, 2, 3, 4, 8)]
    [0.0439, 0.372, 0.8226, 0.9879, 1.0, 0.0439]
    """
    return math.exp(-((pass_rate * (1 - pass_rate) - BEST_VARIANCE) ** 2) / (2 * TEMPERATURE))


# by the setting challenger.reward; section 4.3 compares them
CHALLENGER: dict[str, Callable[[float], float]] = {"variance": variance_reward, **RIVALS}


def challenger_rewards(
    tasks: list[Task],
    left_out: list[Selection],
    answers: list[Answer],
    matches: list[Match],
    *,
    reward: str,
    invalid_reward: float,
) -> Iterator[Row]:
    """Eq. 1 for every attempt; a group is the attempts at one document. An invalid one earns rho.

    A valid question is unscorable if none of its answers could be compared.
    """
    absent = {row["task_id"] for row in left_out}
    correct = correctness(answers, matches)
    answers_of = rows_by("task_id", answers)
    for task in tasks:
        if task["task_id"] in absent:
            continue
        document_id = task["document_id"]
        if task["text"] is None:
            yield scored(task, invalid_reward, {"valid": 0.0}, group=document_id)
            continue
        correct_K = [correct[row["rollout_id"]] for row in answers_of[task["task_id"]]]
        known_K = [is_right for is_right in correct_K if is_right is not None]
        parts = {
            "valid": 1.0,
            "num_answers": float(len(correct_K)),
            "num_compared": float(len(known_K)),
            "num_correct": float(sum(known_K)),
        }
        if not known_K:
            why = "no answer could be compared"
            yield scored(task, None, parts, group=document_id, unscorable=why)
            continue
        rate = sum(known_K) / len(known_K)
        parts["g_bar"] = rate
        yield scored(task, CHALLENGER[reward](rate), parts, group=document_id, score=rate)


def reasoner_rewards(
    answers: list[Answer], matches: list[Match], drawn: list[Selection]
) -> Iterator[Row]:
    """Yield 1 or 0 (section 2.3) for every answer to a question that `drawn` keeps for training.

    A group is the answers to one question. An answer that could not be compared is unscorable.
    """
    kept = {row["task_id"] for row in drawn if row["kept"]}
    yield from answer_rewards([answer for answer in answers if answer["task_id"] in kept], matches)
