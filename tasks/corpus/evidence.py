"""Sentences that an answer must quote, as rows of a rubric."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warehouse.schemas import Row


def evidence_rows(task_id: str, sentences: Iterable[str]) -> Iterator[Row]:
    """Yield one critical criterion per sentence, in order."""
    for position, sentence in enumerate(sentences):
        yield {
            "criterion_id": f"{task_id}-{position}",
            "task_id": task_id,
            "position": position,
            "criterion": sentence,
            "priority": "critical",
            "weight": 1.0,
        }
