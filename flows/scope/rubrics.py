"""Rubrics: a task's criteria, the grade that an answer's verdicts give, and answers whose verdicts
are known.

Axes: K criteria.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tasks.judge import canary_id
from tasks.read import why_no_verdict
from tasks.scorers.rubric import share_met
from tasks.stage import rows_by
from warehouse.schemas import Answer, Criterion, Judgment, Row, Task


def criteria_of(rubrics: list[Criterion]) -> Mapping[str, list[Criterion]]:
    """Criteria by task, in order; malformed rubrics have none."""
    written = [row for row in rubrics if row["criterion"] is not None]
    return rows_by("task_id", sorted(written, key=lambda row: row["position"]))


@dataclass(frozen=True)
class Grade:
    """An answer's grade by its rubric. `g` is None if too few criteria have a verdict for the
    answer to count; `failed` gives the reason if the judge never replied."""

    g: float | None
    num_met: int
    num_criteria: int
    failed: str | None = None


def grades(
    answers: list[Answer], rubrics: list[Criterion], judgments: list[Judgment], min_coverage: float
) -> dict[str, Grade]:
    """The grade of every answer whose task has a rubric. An answer without text, or with a coverage
    below `min_coverage`, has no `g`.

    A criterion that the judge could not be asked about counts neither for nor against; an answer
    with too few remaining criteria is `failed`. An unreadable verdict counts as not met.
    """
    judged = {(j["rollout_id"], j["criterion_id"]): j for j in judgments if j["expected"] is None}
    criteria = criteria_of(rubrics)
    grade_of = {}
    for answer in answers:
        if rubric := criteria[answer["task_id"]]:
            row_K = [judged.get((answer["rollout_id"], c["criterion_id"])) for c in rubric]
            grade_of[answer["rollout_id"]] = _grade(
                answer, row_K, [c["weight"] or 0.0 for c in rubric], min_coverage
            )
    return grade_of


def _grade(
    answer: Answer, row_K: Sequence[Judgment | None], weight_K: Sequence[float], min_coverage: float
) -> Grade:
    verdicts = [
        (row and row["verdict"], w)
        for row, w in zip(row_K, weight_K, strict=True)
        if why_no_verdict([row]) is None
    ]
    verdict_K = [verdict for verdict, _ in verdicts]
    judged_weight_K = [weight for _, weight in verdicts]
    needed = min_coverage * len(row_K)
    num_read = sum(v is not None for v in verdict_K)
    met = sum(1 for v in verdict_K if v)
    only_pitfalls = not any(weight > 0 for weight in judged_weight_K)
    if answer["answer"] is None or num_read < needed or num_read == 0 or only_pitfalls:
        lacking = len(verdict_K) < needed or only_pitfalls
        return Grade(None, met, len(row_K), why_no_verdict(row_K) if lacking else None)
    return Grade(share_met(verdict_K, judged_weight_K), met, len(row_K))


def canaries(rubrics: list[Criterion], tasks: list[Task], *, count: int) -> Iterator[Row]:
    """Answers with known verdicts, made from the criteria themselves: an answer that states all of
    them must pass, and one that omits a criterion must fail it."""
    text = {task["task_id"]: task["text"] for task in tasks}
    known_verdicts = (
        (criteria, criterion, expected)
        for criteria in criteria_of(rubrics).values()
        for criterion in criteria
        for expected in (1, 0)
    )
    for criteria, criterion, expected in islice(known_verdicts, count):
        stated = [c for c in criteria if expected or c is not criterion]
        yield {
            "task_id": criterion["task_id"],
            "rollout_id": canary_id(expected, criterion["criterion_id"]),
            "criterion_id": criterion["criterion_id"],
            "task": text[criterion["task_id"]],
            "answer": " ".join(_statement(c["criterion"] or "") for c in stated),
            "criterion": criterion["criterion"],
        }


def _statement(criterion: str) -> str:
    """A criterion as an answer would state it: without its leading verb.

    >>> _statement("Provides Baba has craft lomicr .")
    'Baba has craft lomicr .'
    """
    return criterion.partition(" ")[2]
