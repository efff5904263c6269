"""Read SCOPE's replies: the tags or lines that hold a task, a verdict or a rubric (`tasks.readers`
parses both), and the measurements taken of every reply, even a malformed one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from flows.scope.judge_settings import PRIORITIES
from flows.scope.rewards import challenger_format, solver_format
from tasks.read import answer_length, is_readable, texts_and_searches
from tasks.readers import lines
from tasks.readers.malformed import Malformed
from tasks.readers.tags import Element, elements, last_element
from tasks.readers.verdicts import marked
from warehouse.schemas import PromptRow, Rollout, Row

_PRIORITY = re.compile(r"priority\s*+=\s*+[\"'“”‘’]?\s*+(\w+)\s*+(?:[\"'“”‘’\s]|$)", re.IGNORECASE)
_QUESTION = re.compile(r"</?question>", re.IGNORECASE)
read_answer = partial(last_element, name="answer")
read_verdict = partial(marked, name="score")  # 1 or 0
# the same for replies in lines
read_task_line = partial(lines.labelled, name="task")
read_answer_line = partial(lines.labelled, name="answer")


def read_task(reply: str) -> str:
    """The task: the whole text of its element, without the tags of a nested `<question>`.

    Raises Malformed for a missing or empty question element.

    >>> read_task("<think>x</think><task>In 400 words: <question> Why? </question></task>")
    'In 400 words: Why?'
    """
    text = " ".join(
        part.strip() for part in _QUESTION.split(last_element(reply, "task")) if part.strip()
    )
    if not text:
        raise Malformed("empty question element")
    return text


def passes(reply: str, read: Callable[[str], int]) -> bool:
    """Whether the verdict that `read` finds in a gate's reply is 1."""
    return read(reply) == 1


def read_rubric(
    reply: str,
    min_criteria: int,
    max_criteria: int,
    weights: dict[str, float],
    *,
    in_lines: bool = False,
) -> list[Row]:
    """The criteria in order: criterion, priority, weight, position. Repeated criteria count once; a
    criterion without a known priority gets the lowest.

    Raises Malformed for fewer criteria than `min_criteria` or more than `max_criteria`.
    """
    if in_lines:
        criteria = dict.fromkeys(lines.read_items(reply), PRIORITIES[-1])
    else:
        criteria = {
            _criterion(element): _priority(element)
            for element in _criteria(reply)
            if _criterion(element)
        }
    if not criteria:
        raise Malformed("no criterion")
    if not min_criteria <= len(criteria) <= max_criteria:
        raise Malformed(
            f"{'fewer' if len(criteria) < min_criteria else 'more'} criteria than allowed"
        )
    return [
        {"position": i, "criterion": text, "priority": priority, "weight": weights[priority]}
        for i, (text, priority) in enumerate(criteria.items())
    ]


def _criteria(reply: str) -> list[Element]:
    """The criterion elements of the last rubric, or all of them if there is no rubric element."""
    if "<rubrics" not in reply.lower():
        return elements(reply, "rubric")
    return elements(last_element(reply, "rubrics"), "rubric")


def _criterion(element: Element) -> str:
    within = elements(element.text, "criterion")
    return " ".join((within[-1].text if within else element.text).split())


def _priority(element: Element) -> str:
    named = _PRIORITY.search(element.attributes)
    if named and named[1].lower() in PRIORITIES:
        return named[1].lower()
    return PRIORITIES[-1]


def measure_task(rollout: Rollout, prompt: PromptRow, *, in_lines: bool) -> Row:
    """The parts of the format reward, and as `evidence` the ids of the source document and of all
    retrieved documents."""
    texts, searched = texts_and_searches(rollout)
    results = [result for turn in rollout["turns"] or [] for result in turn["results"] or []]
    retrieved = [document_id for result in results for document_id in result["document_ids"]]
    read = read_task_line if in_lines else read_task
    form = challenger_format(
        texts,
        searched,
        prompt["search_turns"] or 0,
        is_readable(read, rollout),
        thinks=not in_lines,
    )
    return {"evidence": list(dict.fromkeys([prompt["document_id"], *retrieved])), "format": form}


def measure_answer(rollout: Rollout, prompt: PromptRow, *, model: str, in_lines: bool) -> Row:
    """The answer's length, the number of searches, and the parts of the format reward, even if the
    answer was cut off."""
    texts, searched = texts_and_searches(rollout)
    read = read_answer_line if in_lines else read_answer
    form = solver_format(texts, searched, is_readable(read, rollout), thinks=not in_lines)
    length = answer_length(rollout, prompt, read=read, model=model)
    return {**length, "format": form, "num_searches": sum(searched)}


def measure_gate(rollout: Rollout, prompt: PromptRow) -> Row:
    """The columns of a row of `gates` that even a malformed reply has: which gate was asked."""
    return {"gate": prompt["template"].removeprefix("gate_"), "kind": "model"}


def rubric_rows(rollout: Rollout, prompt: PromptRow, **allowed: Any) -> list[Row]:
    """Rows of `rubrics`: the criteria of a reply with their ids. `allowed`: the limits and weights
    of `read_rubric`. Raises Malformed as that does."""
    criteria = read_rubric(rollout["reply"] or "", **allowed)
    return [{**row, "criterion_id": f"{prompt['task_id']}-{row['position']}"} for row in criteria]


def measure_rubric(rollout: Rollout, prompt: PromptRow) -> Row:
    """The columns of the single row of a malformed rubric."""
    return {"criterion_id": prompt["task_id"], "position": 0}
