"""From comparisons to rewards: the rows of the `scores` table, every part of a reward in its own component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from flows.spice import rewards
from tasks.prompt import Row

ENGINE_ERROR = "engine error"


def correctness(answers: list[Row], matches: list[Row]) -> dict[str, bool | None]:
    """Whether each answer, by its rollout, is right. A reply without a box is wrong; an engine failure and a comparison
    that came to nothing (timed out, crashed) are None: they are in no mean."""
    matched = {row["rollout_id"]: row["matched"] for row in matches}
    return {
        row["rollout_id"]: matched[row["rollout_id"]]
        if row["answer"] is not None
        else (None if row["malformed"] == ENGINE_ERROR else False)
        for row in answers
    }


def challenger_scores(
    tasks: list[Row], left_out: list[Row], answers: list[Row], matches: list[Row], *, reward: str, invalid_reward: float
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
        about = {"rollout_id": task["rollout_id"], "task_id": task["task_id"], "group_id": task["document_id"]}
        if task["text"] is None:
            yield {**about, "components": {"valid": 0.0}, "total": invalid_reward, "unscorable": None}
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
            yield {**about, "components": parts, "total": None, "unscorable": "no answer could be compared"}
            continue
        parts["g_bar"] = rewards.pass_rate(correct_K)
        paid = {"components": parts, "total": rewards.CHALLENGER[reward](correct_K), "unscorable": None}
        yield {**about, "score": parts["g_bar"], **paid}


def reasoner_scores(answers: list[Row], matches: list[Row], selections: list[Row]) -> Iterator[Row]:
    """Section 2.3 for every answer to a question that is trained on; the group is the question's."""
    kept, correct = {row["task_id"] for row in selections if row["kept"]}, correctness(answers, matches)
    reason = {row["rollout_id"]: row["reason"] for row in matches}
    for answer in answers:
        if answer["task_id"] not in kept:
            continue
        found = correct[answer["rollout_id"]]
        parts = {"boxed": float(answer["answer"] is not None)}
        yield {
            "rollout_id": answer["rollout_id"],
            "group_id": answer["prompt_id"],
            "task_id": answer["task_id"],
            "score": None if found is None else float(found),
            "components": parts if found is None else {**parts, "g": float(found)},
            "total": None if found is None else rewards.reasoner(found),
            "unscorable": (answer["malformed"] or reason[answer["rollout_id"]]) if found is None else None,
        }
