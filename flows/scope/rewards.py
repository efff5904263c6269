"""SCOPE's rewards, each a pure function of one rollout or one group, and the rows of `rewards` made
from them, with every part of a reward as a component.

Equation numbers are those of arXiv 2605.31433; eq. 1 is `tasks.scorers.rubric.share_met`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from flows.blocks.difficulty_reward import tent as difficulty  # eq. 5
from flows.scope.config import ChallengerReward, SolverReward
from flows.scope.rubrics import Grade, criteria_of, grades
from tasks.ask import readable
from tasks.read import UNANSWERED, why_no_verdict
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Criterion, Gate, Judgment, Row, Task

THINK = "<think>"
REWARDED_SEARCHES = 3  # the search reward saturates there (table 9)


def length_factor(answer_tokens: int, settings: SolverReward) -> float:
    """Eq. 7: 1 up to `length_soft` tokens, then a cosine decay to `length_floor` at `length_hard`,
    and `length_floor` beyond.

    >>> [round(length_factor(n, SolverReward()), 4) for n in (1024, 1536, 2048, 9999)]
    [1.0, 0.525, 0.05, 0.05]
    """
    soft = settings.length_soft
    hard = settings.length_hard
    floor = settings.length_floor
    if answer_tokens <= soft or not settings.length_penalty:
        return 1.0
    if answer_tokens >= hard:
        return floor
    return floor + (1 - floor) / 2 * (
        1 + math.cos(math.pi * (answer_tokens - soft) / (hard - soft))
    )


def challenger_reward(
    format_total: float, passed: bool, g_bar: float | None, weights: ChallengerReward
) -> float:
    """Eq. 4: format, plus difficulty for tasks that pass the quality gates. A rollout whose format
    reward is 0 earns nothing.

    >>> weights = ChallengerReward()
    >>> challenger_reward(1.0, True, 0.5, weights), challenger_reward(1.0, False, None, weights)
    (1.5, 0.5)
    >>> challenger_reward(0.0, True, 0.5, weights)
    0.0
    """
    if format_total == 0:
        return 0.0
    reward = weights.format_weight * format_total
    if passed and g_bar is not None:
        reward += weights.difficulty_weight * difficulty(g_bar, weights.tau)
    return reward


def solver_reward(
    g: float, length: float, format_total: float, search: float, weights: SolverReward
) -> float:
    """Eq. 6: the rubric score scaled down by length, plus format, plus search.

    >>> round(solver_reward(0.5, 1.0, 1.0, 1 / 3, SolverReward()), 4)
    1.0333
    """
    return (
        weights.rubric_weight * length * g
        + weights.format_weight * format_total
        + weights.search_weight * search
    )


def search_reward(num_searches: int) -> float:
    """F.2: the number of valid searches in all turns divided by three, at most 1.

    >>> search_reward(0), search_reward(3), search_reward(5)
    (0.0, 1.0, 1.0)
    """
    return min(1.0, num_searches / REWARDED_SEARCHES)


def challenger_format(
    text_T: Sequence[str],
    valid_search_T: Sequence[bool],
    required_turns: int,
    has_task: bool,
    *,
    thinks: bool = True,
) -> dict[str, float]:
    """F.1: the mean of think, tool and structure. Prompts that ask for no thoughts leave out think.

    >>> turns = ["<think>a</think><search>b</search>", "<task>c</task>"]
    >>> challenger_format(turns, [True, False], required_turns=1, has_task=True)["total"]
    0.8333333333333334
    """
    tool = min(1.0, sum(valid_search_T) / required_turns)
    structure = float(has_task)
    if not thinks:
        return _format(tool=tool, structure=structure)
    return _format(think=_think_share(text_T), tool=tool, structure=structure)


def solver_format(
    text_T: Sequence[str],
    valid_search_T: Sequence[bool],
    has_answer: bool,
    *,
    thinks: bool = True,
) -> dict[str, float]:
    """F.2: the mean of think, tool and answer. Prompts that ask for no thoughts leave out think.

    Tool is the share of the turns before the last that search; it is 0 for a single turn.

    >>> solver_format(["<think>a</think><answer>b</answer>"], [False], True)["tool"]
    0.0
    """
    before_last = len(text_T) - 1
    tool = 0.0
    if before_last:
        tool = min(1.0, sum(valid_search_T[:-1]) / before_last)
    if not thinks:
        return _format(tool=tool, answer=float(has_answer))
    return _format(think=_think_share(text_T), tool=tool, answer=float(has_answer))


def _think_share(text_T: Sequence[str]) -> float:
    if not text_T:
        return 0.0
    opened_and_closed = sum("</think>" in text.partition(THINK)[2] for text in text_T)
    return opened_and_closed / len(text_T)


def _format(**part: float) -> dict[str, float]:
    return {**part, "total": math.fsum(part.values()) / len(part)}


def challenger_rewards(
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

    A malformed task, or one that passed the gates but has no valid rubric, earns 0, format
    included. If an engine failed, on the task itself or on the way to its difficulty, the task is
    unscorable.
    """
    graded = grades(answers, rubrics, judgments, min_coverage)
    passed = passing(tasks, gates)
    answers_of = rows_by("task_id", answers)
    with_rubric = set(criteria_of(rubrics))
    gates_of = rows_by("task_id", gates)
    rubrics_of = rows_by("task_id", rubrics)
    for task in tasks:
        passes = task["task_id"] in passed
        form = task["format"] or {}
        all_grades = [graded.get(answer["rollout_id"]) for answer in answers_of[task["task_id"]]]
        counted = [grade for grade in all_grades if grade and grade.g is not None]
        g_bar = mean_of(grade.g for grade in counted)
        is_void = task["text"] is None or (passes and task["task_id"] not in with_rubric)
        total = 0.0
        if not is_void:
            total = challenger_reward(form["total"], passes, g_bar, settings)
        parts = {
            **_format_parts(form),
            "passed_gates": float(passes),
            "has_rubric": float(task["task_id"] in with_rubric),
            "num_rollouts": float(len(counted)),
            "num_met": float(sum(grade.num_met for grade in counted)),
            "num_criteria": float(sum(grade.num_criteria for grade in counted)),
        }
        if g_bar is not None:
            parts |= {"g_bar": g_bar, "difficulty": difficulty(g_bar, settings.tau)}
        judged = (*gates_of[task["task_id"]], *rubrics_of[task["task_id"]])
        decided = (
            g_bar is not None
            or not form.get("total")
            or any(row.get("passed") is False for row in judged)
        )
        failed = None
        if not decided:
            failed = why_no_verdict(judged) or _unanswered(answers_of[task["task_id"]], graded)
        yield scored(task, total, parts, score=g_bar, unscorable=failed)


def solver_rewards(
    answers: list[Answer],
    rubrics: list[Criterion],
    judgments: list[Judgment],
    *,
    settings: SolverReward,
    min_coverage: float,
) -> Iterator[Row]:
    """Eq. 6 for every answer. Without enough verdicts g is 0; format and search still count."""
    graded = grades(answers, rubrics, judgments, min_coverage)
    for answer in answers:
        grade = graded.get(answer["rollout_id"])
        form = answer["format"] or {}
        tokens = answer["answer_tokens"] or 0
        is_graded = grade is not None and grade.g is not None
        g = (grade.g if grade else None) or 0.0
        length = length_factor(tokens, settings)
        search = search_reward(answer["num_searches"] or 0)
        total = solver_reward(g, length, form["total"], search, settings)
        parts = {
            **_format_parts(form),
            "g": g,
            "graded": float(is_graded),
            "length_factor": length,
            "search": search,
            "answer_tokens": float(tokens),
        }
        yield scored(answer, total, parts, score=g, unscorable=grade and grade.failed)


def _unanswered(answers: list[Answer], graded: dict[str, Grade]) -> str | None:
    """The engine failure, in answering or in judging, that left a task without a difficulty; None
    if there was none."""
    failures = (
        graded[a["rollout_id"]].failed if a["rollout_id"] in graded else None for a in answers
    )
    never = (a["malformed"] for a in answers if a["malformed"] == UNANSWERED["error"])
    return next(filter(None, (*failures, *never)), None)


def _format_parts(form: dict[str, float]) -> dict[str, float]:
    return {
        "format" if name == "total" else f"format_{name}": value for name, value in form.items()
    }


def passing(tasks: list[Task], gates: Iterable[Gate]) -> set[str]:
    """QG: the ids of the tasks that pass every gate. A gate without a verdict is not passed;
    without any gate, all tasks pass."""
    return {task["task_id"] for task in readable(tasks)} - {
        row["task_id"] for row in gates if not row["passed"]
    }
