"""Prompts to distil on, and how far a student is from its teacher.

The prompts are those of an earlier run: `ask` continues their conversations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from warehouse.draft import hash_json, unit_draw
from warehouse.schemas import Datum, PromptRow, ReferenceRow, Row


def earlier_prompts(
    prompts: list[PromptRow],
    *,
    held_out: float,
    is_measured: bool,
    most: int | None,
    seed: int,
    draw: int,
) -> Iterator[Row]:
    """Yield earlier prompts again, each conversation once, in a random order per `draw`.

    `held_out` is the share of tasks, drawn with `seed`, whose prompts are only measured.
    `is_measured` chooses these prompts or else the others; `most` is their maximum number.
    """
    conversation_of = {json.dumps(row["messages"]): row for row in reversed(prompts)}
    chosen = [
        row
        for row in conversation_of.values()
        if (unit_draw(seed, row["task_id"] or row["prompt_id"]) < held_out) == is_measured
    ]
    chosen.sort(key=lambda row: hash_json([seed, draw, row["prompt_id"]]))
    for row in chosen[:most]:
        yield {
            "document_id": row["document_id"],
            "task_id": row["task_id"],
            "task_type": row["task_type"],
            "messages": row["messages"],
        }


def distance_to_teacher(
    batch: list[Datum], logprobs: list[ReferenceRow]
) -> Iterable[tuple[str, float]]:
    """Yield the distance of each of a student's rollouts from the teacher, given the teacher's
    log-probabilities.

    `reverse_kl`: mean of log p - log p_teacher over the rollout's sampled tokens, in nats. Averaged
    over rollouts sampled at temperature 1, it estimates the reverse KL per token.
    """
    for datum, row in zip(batch, logprobs, strict=True):
        assert row["rollout_id"] == datum["rollout_id"], "the rows are those of the batch"
        gaps = [
            own - teacher
            for own, teacher, counts in zip(
                datum["logprobs"], row["logprobs"], datum["loss_mask"], strict=True
            )
            if counts
        ]
        yield "reverse_kl", sum(gaps) / len(gaps)
