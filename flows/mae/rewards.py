"""MAE's rewards (sections 4.1 to 4.3), and the rows of `scores` made from them. Every part lies in 0..1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tasks.read import not_sampled
from tasks.readers.tags import elements
from tasks.score import mean_of, scored
from tasks.stage import rows_by
from warehouse.schemas import Answer, Mark, PromptRow, Rollout, Row, Task

NO_MARK = "no readable mark"


def well_formed(num_elements: int) -> float:
    """The format reward of a reply with this number of valid elements of its role.

    >>> well_formed(1), well_formed(2), well_formed(0)
    (1.0, 0.5, 0.0)
    """
    return 1.0 if num_elements == 1 else 0.5 if num_elements else 0.0


def tags_kept(rollout: Rollout, prompt: PromptRow, *, name: str) -> Row:
    """The format reward of a reply that should have one `<name>` element."""
    return {"format": {"total": well_formed(len(elements(rollout["reply"] or "", name)))}}


def worth(answers: Iterable[Answer], marks: list[Mark], unread: float | None) -> dict[str, float | None]:
    """V_J: the mean mark of each answer, by its rollout. A reply without an answer is worth 0."""
    of = rows_by("rollout_id", marks)
    return {
        row["rollout_id"]: 0.0 if row["answer"] is None else mean_of((m["mark"] for m in of[row["rollout_id"]]), unread)
        for row in answers
    }


def pay_proposer(
    tasks: list[Task],
    quality: list[Mark],
    tried: list[Answer],
    solved: list[Mark],
    *,
    pays_format: bool,
    unread: float | None,
    difficulty_from: float,
) -> Iterator[Row]:
    """R_P: quality, difficulty (1 less the mean worth of the answers; 0 where the quality is below `difficulty_from`)
    and format. A reply without a question is worth nothing."""
    sampled = [answer for answer in tried if not not_sampled(answer)]
    marks_of, answers_of = rows_by("task_id", quality), rows_by("task_id", sampled)
    worth_of = worth(sampled, solved, unread)
    for task in tasks:
        form, task_id = (task["format"] or {}).get("total", 0.0), task["task_id"]
        if task["text"] is None:
            yield scored(task, 0.0, {"format": form})
            continue
        good = mean_of((mark["mark"] for mark in marks_of[task_id]), unread)
        right = mean_of((worth_of[answer["rollout_id"]] for answer in answers_of[task_id]), unread)
        if good is None or right is None:
            yield scored(task, None, {"format": form}, unscorable=NO_MARK)
            continue
        hard = 1 - right if good >= difficulty_from - 1e-9 else 0.0
        parts = {"quality": good, "difficulty": hard, "format": form}
        yield scored(task, mean_of([good, hard, form if pays_format else None]), parts, score=right)


def pay_solver(answers: list[Answer], marks: list[Mark], *, pays_format: bool, unread: float | None) -> Iterator[Row]:
    """R_S: the Judge's mark and format."""
    worth_of = worth(answers, marks, unread)
    for answer in answers:
        form, mark = (answer["format"] or {}).get("total", 0.0), worth_of[answer["rollout_id"]]
        why = NO_MARK if mark is None else None
        parts = {"format": form, **({} if mark is None else {"mark": mark})}
        yield scored(answer, mean_of([mark, form if pays_format else None]), parts, score=mark, unscorable=why)


def pay_judge(marks: list[Mark], *, pays_format: bool) -> Iterator[Row]:
    """R_J: format alone. Nobody says whether a mark is right."""
    for row in marks:
        form = (row["format"] or {}).get("total", 0.0)
        yield scored(row, form * pays_format, {"format": form})
