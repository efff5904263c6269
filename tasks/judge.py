"""Verdicts of a judge on answers, with what an oracle says where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasks.prompt import Malformed
from tasks.read import UNANSWERED
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import JUDGMENTS
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
    Where a prompt was asked again, its last rollout counts.
    """
    prompt_of = {row["prompt_id"]: row for row in prompts.rows()}
    criterion_of = {row["criterion_id"]: row["criterion"] for row in rows_of(rubrics)}
    answer_of = {row["rollout_id"]: row["answer"] for row in rows_of(answers)}
    for rollout in {row["prompt_id"]: row for row in rollouts.rows()}.values():
        prompt = prompt_of[rollout["prompt_id"]]
        about, answer = prompt["rollout_id"], answer_of.get(prompt["rollout_id"])
        truth = oracle(criterion_of[prompt["criterion_id"]], answer) if oracle and answer else None
        yield {
            "rollout_id": about,
            "task_id": prompt["task_id"],
            "criterion_id": prompt["criterion_id"],
            "oracle": None if truth is None else int(truth),
            "expected": int(about.removeprefix(CANARY)[0]) if about.startswith(CANARY) else None,
            "judge_rollout_id": rollout["rollout_id"],
            **_verdict(rollout, read),
        }


def canary_id(expected: int, criterion_id: str) -> str:
    return f"{CANARY}{expected}-{criterion_id}"


def _verdict(rollout: dict[str, Any], read: Callable[[str], int]) -> dict[str, Any]:
    if rollout["finish_reason"] in ("error", "context"):
        return {"verdict": None, "malformed": UNANSWERED[rollout["finish_reason"]]}
    try:
        return {"verdict": read(rollout["reply"]), "malformed": None}
    except Malformed as problem:
        return {"verdict": None, "malformed": str(problem)}
