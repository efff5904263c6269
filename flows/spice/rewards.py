"""SPICE's rewards of a question, each a pure function of its pass rate, the share of its answers that are right; and
the rows of `scores` made from them. Equation numbers are those of arXiv 2510.24684."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from flows.frontier import RIVALS
from flows.questions import correctness, pay_answers
from tasks.score import scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Match, Row, Selection, Task

BEST_VARIANCE, TEMPERATURE = 0.25, 0.01  # eq. 1 and 5


def variance(pass_rate: float) -> float:
    """Eq. 1: a bell over the variance p(1 - p) of the answers' correctness, 1 if half of them are right.

    >>> [round(variance(n / 8), 4) for n in (0, 1, 2, 3, 4, 8)]
    [0.0439, 0.372, 0.8226, 0.9879, 1.0, 0.0439]
    """
    return math.exp(-((pass_rate * (1 - pass_rate) - BEST_VARIANCE) ** 2) / (2 * TEMPERATURE))


CHALLENGER: dict[str, Callable[[float], float]] = {"variance": variance, **RIVALS}  # section 4.3


def challenger_scores(
    tasks: list[Task],
    left_out: list[Selection],
    answers: list[Answer],
    matches: list[Match],
    *,
    reward: str,
    invalid_reward: float,
) -> Iterator[Row]:
    """Eq. 1 for every attempt of a group; a group is one document's. An invalid attempt earns rho.

    A valid question of which no answer could be compared is unscorable.
    """
    absent, correct = {row["task_id"] for row in left_out}, correctness(answers, matches)
    answers_to = rows_by("task_id", answers)
    for task in tasks:
        if task["task_id"] in absent:
            continue
        if task["text"] is None:
            yield scored(task, invalid_reward, {"valid": 0.0}, group=task["document_id"])
            continue
        given = [correct[answer["rollout_id"]] for answer in answers_to[task["task_id"]]]
        correct_K = [found for found in given if found is not None]
        parts = {
            "valid": 1.0,
            "num_answers": float(len(given)),
            "num_compared": float(len(correct_K)),
            "num_correct": float(sum(correct_K)),
        }
        if not correct_K:
            yield scored(task, None, parts, group=task["document_id"], unscorable="no answer could be compared")
            continue
        rate = parts["g_bar"] = sum(correct_K) / len(correct_K)
        yield scored(task, CHALLENGER[reward](rate), parts, group=task["document_id"], score=rate)


def reasoner_scores(answers: list[Answer], matches: list[Match], drawn: list[Selection]) -> Iterator[Row]:
    """Section 2.3 for every answer to a question that is trained on; a group is one question's."""
    kept = {row["task_id"] for row in drawn if row["kept"]}
    yield from pay_answers([answer for answer in answers if answer["task_id"] in kept], matches)
