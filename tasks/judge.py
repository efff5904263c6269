"""A judge's verdicts on answers, and an oracle's if there is one."""

from __future__ import annotations

from collections.abc import Callable

from tasks.read import UNANSWERED, reason
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import JUDGMENTS, Answer, Criterion, PromptRow, Rollout, Row
from warehouse.store import Table

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
    """Yield a verdict for every grading rollout, and beside it `oracle(criterion, answer)`.

    A prompt whose rollout id is `canary-1-...` or `canary-0-...` grades an answer of known verdict (see `canary_id`).
    If a prompt was asked again, its last rollout counts.
    """
    prompt_of = {row["prompt_id"]: row for row in prompts.rows(PromptRow)}
    criterion_of = {row["criterion_id"]: row["criterion"] for row in rows_of(rubrics, Criterion)}
    answer_of = {row["rollout_id"]: row["answer"] for row in rows_of(answers, Answer)}
    for rollout in {row["prompt_id"]: row for row in rollouts.rows(Rollout)}.values():
        prompt = prompt_of[rollout["prompt_id"]]
        about, criterion_id = prompt["rollout_id"], prompt["criterion_id"]
        assert about is not None and criterion_id is not None, "a grading prompt names an answer and a criterion"
        answer, criterion = answer_of.get(about), criterion_of.get(criterion_id)
        truth = oracle(criterion, answer) if oracle and answer and criterion else None
        yield {
            "rollout_id": about,
            "task_id": prompt["task_id"],
            "criterion_id": criterion_id,
            "oracle": None if truth is None else int(truth),
            "expected": int(about.removeprefix(CANARY)[0]) if about.startswith(CANARY) else None,
            "judge_rollout_id": rollout["rollout_id"],
            **_verdict(rollout, read),
        }


def canary_id(expected: int, criterion_id: str) -> str:
    return f"{CANARY}{expected}-{criterion_id}"


def _verdict(rollout: Rollout, read: Callable[[str], int]) -> Row:
    """The verdict of a reply, even of one that filled the context; without a verdict, the reason."""
    if rollout["finish_reason"] == "error":
        return {"verdict": None, "malformed": UNANSWERED["error"]}
    try:
        return {"verdict": read(rollout["reply"] or ""), "malformed": None}
    except Exception as problem:  # a reader's fault costs its reply only
        full = rollout["finish_reason"] == "context"
        return {"verdict": None, "malformed": UNANSWERED["context"] if full else reason(problem)}
