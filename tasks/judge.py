"""A judge's verdicts on answers, and an oracle's if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tasks.read import reason, why_unanswered
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import JUDGMENTS, Answer, Criterion, PromptRow, Rollout, Row
from warehouse.store import Table

# (criterion, answer) -> whether the answer meets it; None if unknown
Oracle = Callable[[str, str], bool | None]
CANARY = "canary-"


@stage(JUDGMENTS)
def read_judgments(
    rollouts: Table,
    prompts: Table,
    rubrics: Tables,
    answers: Tables = (),
    *,
    read: Callable[[str], int],
    oracle: Oracle | None = None,
) -> Rows:
    """Yield one verdict per grading prompt, and beside it `oracle(criterion, answer)`.

    A prompt whose rollout id is `canary-1-...` or `canary-0-...` grades an answer whose verdict is
    known (see `canary_id`). If a prompt was asked again, its last rollout counts.
    """
    yield from judgment_rows(rollouts, prompts, rubrics, answers, read=read, oracle=oracle)


def judgment_rows(
    rollouts: Table,
    prompts: Table,
    rubrics: Tables,
    answers: Tables,
    *,
    read: Callable[[str], int],
    oracle: Oracle | None,
) -> Iterator[Row]:
    """Yield the rows of `read_judgments`."""
    prompt_of = {row["prompt_id"]: row for row in prompts.rows(PromptRow)}
    criterion_of = {row["criterion_id"]: row["criterion"] for row in rows_of(rubrics, Criterion)}
    answer_of = {row["rollout_id"]: row["answer"] for row in rows_of(answers, Answer)}
    last_rollout_of = {row["prompt_id"]: row for row in rollouts.rows(Rollout)}
    for prompt_id, rollout in last_rollout_of.items():
        prompt = prompt_of[prompt_id]
        answer_id = prompt["rollout_id"]
        criterion_id = prompt["criterion_id"]
        assert answer_id is not None and criterion_id is not None, (
            "a grading prompt names an answer and a criterion"
        )
        answer = answer_of.get(answer_id)
        criterion = criterion_of.get(criterion_id)
        truth = None
        if oracle and answer and criterion:
            truth = oracle(criterion, answer)
        yield {
            "rollout_id": answer_id,
            "task_id": prompt["task_id"],
            "criterion_id": criterion_id,
            "oracle": None if truth is None else int(truth),
            "expected": _verdict_of_canary(answer_id),
            "judge_rollout_id": rollout["rollout_id"],
            **_verdict(rollout, read),
        }


def canary_id(expected: int, criterion_id: str) -> str:
    """The rollout id of an answer whose verdict is known, for the prompt that grades it."""
    return f"{CANARY}{expected}-{criterion_id}"


def _verdict_of_canary(answer_id: str) -> int | None:
    """The known verdict, 0 or 1; None if the answer is not a canary."""
    if not answer_id.startswith(CANARY):
        return None
    return int(answer_id.removeprefix(CANARY)[0])


def _verdict(rollout: Rollout, read: Callable[[str], int]) -> Row:
    """The verdict in a reply, even in one that filled the context; if there is none, the reason."""
    if rollout["finish_reason"] == "error":
        return {"verdict": None, "malformed": why_unanswered(rollout)}
    try:
        return {"verdict": read(rollout["reply"] or ""), "malformed": None}
    except Exception as problem:  # a bug in a reader costs only this reply
        if rollout["finish_reason"] == "context":
            return {"verdict": None, "malformed": why_unanswered(rollout)}
        return {"verdict": None, "malformed": reason(problem)}
