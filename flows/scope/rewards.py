"""SCOPE's rewards, each a pure function of one rollout or one group, and the rows of `scores` made from them, where
every part of a reward is a component.

Equation numbers are those of arXiv 2605.31433; eq. 1 is `tasks.rubrics.share_met`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from flows.frontier import tent as difficulty  # eq. 5
from flows.scope.config import ChallengerReward, SolverReward
from tasks.ask import readable
from tasks.read import UNANSWERED, not_heard
from tasks.rubrics import Grade, criteria_of, grades
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Criterion, Gate, Judgment, Row, Task

THINK, SEARCHES_PAID = "<think>", 3  # search reward saturates at three searches (table 9)


def length_factor(answer_tokens: int, settings: SolverReward) -> float:
    """Eq. 7: 1 up to `length_soft` tokens, a cosine down to `length_floor` at `length_hard`, that floor beyond.

    >>> [round(length_factor(n, SolverReward()), 4) for n in (1024, 1536, 2048, 9999)]
    [1.0, 0.525, 0.05, 0.05]
    """
    soft, hard, floor = settings.length_soft, settings.length_hard, settings.length_floor
    if answer_tokens <= soft or not settings.length_penalty:
        return 1.0
    if answer_tokens >= hard:
        return floor
    return floor + (1 - floor) / 2 * (1 + math.cos(math.pi * (answer_tokens - soft) / (hard - soft)))


def challenger(format_total: float, passed: bool, g_bar: float | None, weights: ChallengerReward) -> float:
    """Eq. 4: format, plus difficulty for tasks that pass the quality gates. A rollout without any format earns nothing.

    >>> [challenger(*given, ChallengerReward()) for given in ((1.0, True, 0.5), (1.0, False, None), (0.0, True, 0.5))]
    [1.5, 0.5, 0.0]
    """
    if format_total == 0:
        return 0.0
    frontier = difficulty(g_bar, weights.tau) if passed and g_bar is not None else 0.0
    return weights.format_weight * format_total + weights.difficulty_weight * frontier


def solver(g: float, length: float, format_total: float, search: float, weights: SolverReward) -> float:
    """Eq. 6: the rubric score scaled down by length, plus format, plus search.

    >>> round(solver(0.5, 1.0, 1.0, 1 / 3, SolverReward()), 4)
    1.0333
    """
    return weights.rubric_weight * length * g + weights.format_weight * format_total + weights.search_weight * search


def search_reward(num_searches: int) -> float:
    """F.2: valid searches in all turns, paid up to three.

    >>> search_reward(0), search_reward(3), search_reward(5)
    (0.0, 1.0, 1.0)
    """
    return min(1.0, num_searches / SEARCHES_PAID)


def challenger_format(
    text_T: Sequence[str], valid_search_T: Sequence[bool], required_turns: int, has_task: bool
) -> dict[str, float]:
    """F.1: the mean of think, tool and structure.

    >>> challenger_format(["<think>a</think><search>b</search>", "<task>c</task>"], [True, False], 1, True)["total"]
    0.8333333333333334
    """
    think = _think_share(text_T)
    tool = min(1.0, sum(valid_search_T) / required_turns)
    return _format(think=think, tool=tool, structure=float(has_task))


def solver_format(text_T: Sequence[str], valid_search_T: Sequence[bool], has_answer: bool) -> dict[str, float]:
    """F.2: the mean of think, tool (searches in all but the last turn, per such turn; 0 for a single turn) and answer.

    >>> solver_format(["<think>a</think><answer>b</answer>"], [False], True)["tool"]
    0.0
    """
    before_last = len(text_T) - 1
    tool = min(1.0, sum(valid_search_T[:-1]) / before_last) if before_last else 0.0
    return _format(think=_think_share(text_T), tool=tool, answer=float(has_answer))


def _think_share(text_T: Sequence[str]) -> float:
    opened_and_closed = sum("</think>" in text.partition(THINK)[2] for text in text_T)
    return opened_and_closed / len(text_T) if text_T else 0.0


def _format(**part: float) -> dict[str, float]:
    return {**part, "total": math.fsum(part.values()) / len(part)}


def challenger_scores(
    tasks: list[Task],
    rubrics: list[Criterion],
    answers: list[Answer],
    judgments: list[Judgment],
    gates: Iterable[Gate] = (),
    *,
    settings: ChallengerReward,
    min_coverage: float,
) -> Iterator[Row]:
    """Eq. 4 for every candidate task, with the counts behind its difficulty.

    A malformed task, or one that passed the gates but has no valid rubric, earns 0, format included. If an engine
    failed, on the task itself or on the way to its difficulty, the task is unscorable.
    """
    graded, passed = grades(answers, rubrics, judgments, min_coverage), passing(tasks, gates)
    answers_of, marked = rows_by("task_id", answers), set(criteria_of(rubrics))
    gates_of, rubrics_of = rows_by("task_id", gates), rows_by("task_id", rubrics)
    for task in tasks:
        qg, form = task["task_id"] in passed, task["format"] or {}
        found = [graded.get(answer["rollout_id"]) for answer in answers_of[task["task_id"]]]
        counted = [grade for grade in found if grade and grade.g is not None]
        g_bar = mean_of(grade.g for grade in counted)
        void = task["text"] is None or (qg and task["task_id"] not in marked)
        total = 0.0 if void else challenger(form["total"], qg, g_bar, settings)
        parts = {
            **_format_parts(form),
            "passed_gates": float(qg),
            "has_rubric": float(task["task_id"] in marked),
            "num_rollouts": float(len(counted)),
            "num_met": float(sum(grade.num_met for grade in counted)),
            "num_criteria": float(sum(grade.num_criteria for grade in counted)),
        }
        if g_bar is not None:
            parts |= {"g_bar": g_bar, "difficulty": difficulty(g_bar, settings.tau)}
        judged = (*gates_of[task["task_id"]], *rubrics_of[task["task_id"]])
        decided = g_bar is not None or not form.get("total") or any(row.get("passed") is False for row in judged)
        failed = None if decided else not_heard(judged) or _unanswered(answers_of[task["task_id"]], graded)
        yield scored(task, total, parts, score=g_bar, unscorable=failed)


def solver_scores(
    answers: list[Answer],
    rubrics: list[Criterion],
    judgments: list[Judgment],
    *,
    settings: SolverReward,
    min_coverage: float,
) -> Iterator[Row]:
    """Eq. 6 for every answer. Without enough verdicts g is 0; format and search are paid all the same."""
    graded = grades(answers, rubrics, judgments, min_coverage)
    for answer in answers:
        grade, form, tokens = graded.get(answer["rollout_id"]), answer["format"] or {}, answer["answer_tokens"] or 0
        g = grade.g if grade is not None and grade.g is not None else 0.0
        length, search = length_factor(tokens, settings), search_reward(answer["num_searches"] or 0)
        total = solver(g, length, form["total"], search, settings)
        parts = {
            **_format_parts(form),
            "g": g,
            "graded": float(grade is not None and grade.g is not None),
            "length_factor": length,
            "search": search,
            "answer_tokens": float(tokens),
        }
        yield scored(answer, total, parts, score=g, unscorable=grade and grade.failed)


def _unanswered(answers: list[Answer], graded: dict[str, Grade]) -> str | None:
    """The failure that left a task without a difficulty: of the engine that answers it, or of the Judge's."""
    failures = (graded[a["rollout_id"]].failed if a["rollout_id"] in graded else None for a in answers)
    never = (a["malformed"] for a in answers if a["malformed"] == UNANSWERED["error"])
    return next(filter(None, (*failures, *never)), None)


def _format_parts(form: dict[str, float]) -> dict[str, float]:
    return {"format" if name == "total" else f"format_{name}": value for name, value in form.items()}


def passing(tasks: list[Task], gates: Iterable[Gate]) -> set[str]:
    """QG: ids of the tasks that pass every gate. A gate without a verdict is not passed; with no gate at all, all
    pass."""
    return {task["task_id"] for task in readable(tasks)} - {row["task_id"] for row in gates if not row["passed"]}
