"""What a reply of each of SCOPE's roles becomes: the columns read from it, and those that a malformed one has, too."""

from __future__ import annotations

from collections.abc import Callable

from flows.scope import readers
from flows.scope.rewards import challenger_format, solver_format
from tasks.prompt import Malformed, Row
from tasks.rollouts.tokens import count_tokens
from warehouse.schemas import PromptRow, Rollout


def read_task(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"text": readers.read_task(rollout["reply"] or "")}


def measure_task(rollout: Rollout, prompt: PromptRow) -> Row:
    """The parts of the format reward, and the source document with all that was retrieved."""
    turns = rollout["turns"] or []
    retrieved = [i for turn in turns for result in turn["results"] or [] for i in result["document_ids"]]
    texts, searched = [t["text"] for t in turns], [t["valid_search"] for t in turns]
    has_task = is_readable(readers.read_task, rollout)
    return {
        "evidence": list(dict.fromkeys([prompt["document_id"], *retrieved])),
        "format": challenger_format(texts, searched, prompt["search_turns"] or 0, has_task),
    }


def read_gate(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"passed": bool(readers.read_verdict(rollout["reply"] or ""))}


def measure_gate(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"gate": prompt["template"].removeprefix("gate_"), "kind": "model"}


def read_verdict(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"verdict": readers.read_verdict(rollout["reply"] or "")}


def read_rubric(
    rollout: Rollout, prompt: PromptRow, *, min_criteria: int, max_criteria: int, weights: dict[str, float]
) -> list[Row]:
    found = readers.read_rubric(rollout["reply"] or "", min_criteria, max_criteria, weights)
    return [{**row, "criterion_id": f"{prompt['task_id']}-{row['position']}"} for row in found]


def measure_rubric(rollout: Rollout, prompt: PromptRow) -> Row:
    """A malformed rubric is one row."""
    return {"criterion_id": prompt["task_id"], "position": 0}


def read_answer(rollout: Rollout, prompt: PromptRow) -> Row:
    return {"answer": read_answer_text(rollout["reply"] or "")}


def measure_answer(rollout: Rollout, prompt: PromptRow, *, model: str) -> Row:
    """Its length, its searches, and the parts of the format reward, also of an answer that was cut off."""
    turns, has_answer = rollout["turns"] or [], is_readable(read_answer_text, rollout)
    texts, searched = [t["text"] for t in turns], [t["valid_search"] for t in turns]
    return {
        "answer_tokens": count_tokens(read_answer_text(rollout["reply"] or ""), model) if has_answer else 0,
        "format": solver_format(texts, searched, has_answer),
        "num_searches": sum(searched),
    }


def read_answer_text(reply: str) -> str:
    return readers.last_pair(reply, "answer")


def is_readable(read: Callable[[str], str], rollout: Rollout) -> bool:
    try:
        return bool(read(rollout["reply"] or ""))
    except Malformed:
        return False
