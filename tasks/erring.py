"""Verdicts that err on purpose, in a world that knows the truth.

How much error does a method tolerate, and of which kind? In a built-in world an oracle knows
whether an answer is right, so a run can be given verdicts with a known share and shape of errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from tasks.judge import Oracle, judgment_rows
from tasks.monitors.monitor import Measured, Truth, truths
from tasks.noise import VerdictErrors
from tasks.stage import Rows, Tables, rows_by, rows_of, stage
from warehouse.schemas import JUDGMENTS, MATCHES, Answer, Match, Rollout, Row, Task
from warehouse.store import Table

Draw = Callable[[str], float]


@stage(MATCHES)
def erring_matches(
    matches: Table,
    answers: Table,
    rollouts: Table,
    tasks: Tables,
    *,
    oracle: Truth,
    errors: VerdictErrors,
    seed: int,
) -> Rows:
    """Yield the rows of `matches` with the truth, or an error of the given shape, as the verdict.

    An answer that could not be read or compared, or whose truth is unknown, keeps its verdict. The
    draw depends only on the seed and the id of the answer or task. So a run with a larger share of
    errors has all errors of a run with a smaller share, and more.
    """
    answer_rows = answers.rows(Answer)
    truth_of = truths(answer_rows, rows_of(tasks, Task), oracle)
    answer_of = {row["rollout_id"]: row["answer"] for row in answer_rows}
    length_of = {row["rollout_id"]: len(row["reply"] or "") for row in rollouts.rows(Rollout)}
    for task_id, group in rows_by("task_id", matches.rows(Match)).items():
        known = {
            row["rollout_id"]: bool(truth_of[row["rollout_id"]])
            for row in group
            if row["matched"] is not None and truth_of.get(row["rollout_id"]) is not None
        }
        verdicts = erring(
            known,
            errors,
            draw=lambda name: random.Random(f"{seed} {name}").random(),
            task_id=task_id,
            answer_of=answer_of,
            length_of=length_of,
        )
        for row in group:
            yield {**row, "matched": verdicts.get(row["rollout_id"], row["matched"])}


@stage(JUDGMENTS)
def read_erring_judgments(
    rollouts: Table,
    prompts: Table,
    rubrics: Tables,
    answers: Table,
    *,
    read: Callable[[str], int],
    oracle: Oracle,
    errors: VerdictErrors,
    seed: int,
) -> Rows:
    """Yield the rows of `tasks.judge.read_judgments` with the truth, or an error of the given
    shape, as the verdict.

    A verdict that could not be read, or whose truth is unknown, is unchanged. The shape `length`
    compares answers, not replies, since a judge sees no more. The draw depends only on the seed and
    the ids of the answer and the criterion, or of the task.
    """
    length_of = {row["rollout_id"]: len(row["answer"] or "") for row in answers.rows(Answer)}
    read_rows = list(judgment_rows(rollouts, prompts, rubrics, answers, read=read, oracle=oracle))
    for task_id, group in rows_by("task_id", read_rows).items():
        known = {
            _verdict_id(row): bool(row["oracle"])
            for row in group
            if row["verdict"] is not None and row["oracle"] is not None
        }
        verdicts = erring(
            known,
            errors,
            draw=lambda name: random.Random(f"{seed} {name}").random(),
            task_id=task_id,
            answer_of={},
            length_of={_verdict_id(row): length_of[row["rollout_id"]] for row in group},
        )
        for row in group:
            verdict = verdicts.get(_verdict_id(row))
            yield {**row, "verdict": row["verdict"] if verdict is None else int(verdict)}


def _verdict_id(row: Row) -> str:
    return f"{row['rollout_id']} {row['criterion_id']}"


def erring(
    truth_of: Mapping[str, bool],
    errors: VerdictErrors,
    *,
    draw: Draw,
    task_id: str,
    answer_of: Mapping[str, str | None],
    length_of: Mapping[str, int],
) -> dict[str, bool]:
    """The verdicts on the answers to one task, by rollout id; or by any other id, such as one for
    each answer and criterion.

    `truth_of`: whether each answer is right. `draw`: a number in [0, 1) for an id.

    >>> truth = {"a": True, "b": False, "c": False}
    >>> answers = {"a": "4", "b": "5", "c": "5"}
    >>> wrong_reference = VerdictErrors(shape="mistake", share=1)
    >>> erring(
    ...     truth, wrong_reference, draw=lambda _: 0.5, task_id="t", answer_of=answers, length_of={}
    ... )
    {'a': False, 'b': True, 'c': True}
    """
    truth = dict(truth_of)
    if not truth:
        return truth
    if errors.shape == "independent":
        return {
            rollout_id: is_right != (draw(rollout_id) < errors.share)
            for rollout_id, is_right in truth.items()
        }
    if errors.shape == "length":
        middle = median(length_of[rollout_id] for rollout_id in truth)
        for rollout_id in truth:
            if draw(rollout_id) < errors.share:
                truth[rollout_id] = length_of[rollout_id] > middle
        return truth
    if draw(task_id) >= errors.share:
        return truth
    if errors.shape == "task":
        return {rollout_id: not is_right for rollout_id, is_right in truth.items()}
    mistake = most_frequent([answer_of[name] for name, is_right in truth.items() if not is_right])
    if mistake is None:
        return truth
    return {rollout_id: answer_of[rollout_id] == mistake for rollout_id in truth}


def most_frequent(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer, or the first of several that tie; None without answers.

    >>> most_frequent(["5", "6", "6", "5"])
    '5'
    """
    return max(answers, key=answers.count, default=None)


def verdict_errors(
    matches: list[Match], answers: list[Answer], tasks: list[Task], *, oracle: Truth
) -> Measured:
    """Yield `verdict_error` for each answer: whether its verdict differs from the truth; and
    `wrong_passes` for each wrong answer: whether it passed."""
    truth_of = truths(answers, tasks, oracle)
    for row in matches:
        truth = truth_of.get(row["rollout_id"])
        if row["matched"] is None or truth is None:
            continue
        yield "verdict_error", float(row["matched"] != truth)
        if not truth:
            yield "wrong_passes", float(row["matched"])
