"""From comparisons to rewards: the rows of the `scores` table, every part of a reward in its own component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flows.questions import correctness, pay_answers
from flows.spice import rewards
from tasks.prompt import Row
from tasks.score import scored
from warehouse.schemas import Answer, Match, Selection, Task


def challenger_scores(
    tasks: list[Task],
    left_out: list[Selection],
    answers: list[Answer],
    matches: list[Match],
    *,
    reward: str,
    invalid_reward: float,
) -> Iterator[Row]:
    """Eq. 1 for every attempt of a group; the group is the document's. An invalid one earns rho.

    A valid question of which no answer could be compared is unscorable.
    """
    absent, correct = {row["task_id"] for row in left_out}, correctness(answers, matches)
    correct_of: dict[str, list[bool | None]] = defaultdict(list)
    for answer in answers:
        correct_of[answer["task_id"]].append(correct[answer["rollout_id"]])
    for task in tasks:
        if task["task_id"] in absent:
            continue
        ids = task["task_id"], task["document_id"] or "", task["task_id"]
        if task["text"] is None:
            yield scored(*ids, invalid_reward, {"valid": 0.0})
            continue
        given = correct_of[task["task_id"]]
        correct_K = [found for found in given if found is not None]
        parts = {
            "valid": 1.0,
            "num_answers": float(len(given)),
            "num_compared": float(len(correct_K)),
            "num_correct": float(sum(correct_K)),
        }
        if not correct_K:
            yield scored(*ids, None, parts, unscorable="no answer could be compared")
            continue
        parts["g_bar"] = rewards.pass_rate(correct_K)
        yield scored(*ids, rewards.CHALLENGER[reward](correct_K), parts, score=parts["g_bar"])


def reasoner_scores(answers: list[Answer], matches: list[Match], drawn: list[Selection]) -> Iterator[Row]:
    """Section 2.3 for every answer to a question that is trained on; the group is the question's."""
    kept = {row["task_id"] for row in drawn if row["kept"]}
    yield from pay_answers([answer for answer in answers if answer["task_id"] in kept], matches)
