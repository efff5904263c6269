"""How likely stored replies are under other prompts than their own: one forward pass for each."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tasks.engines.base import Policy
from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.rollouts.replies import last_reply, reply_logprobs
from tasks.rollouts.rollout import Dialogue
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import LIKELIHOODS, Task
from warehouse.store import Table


@stage(LIKELIHOODS, tools=("fleet",), code=(reply_logprobs,))
def likelihoods(
    prompts: Table,
    rollouts: Tables,
    tasks: Tables,
    *,
    kind: str,
    policy: Policy,
    dialogue: Dialogue,
    fleet: Fleet | ChatFleet,
) -> Rows:
    """Yield for every prompt the log-probability, under `policy`, of the last reply of the rollout that it names.

    Prompts name a rollout of `rollouts`, a task of `tasks` and the document they show, which is the source where it is
    the task's own. `kind` says what the replies are. What stood between the rollout's own prompt and its last reply
    stays as it was.
    """
    rows = prompts.rows()
    source = {task["task_id"]: task["document_id"] for task in rows_of(tasks, Task)}
    replies = _last_replies(rollouts, {row["rollout_id"] for row in rows})
    asked = []
    for row in rows:
        between, reply = replies[row["rollout_id"]]
        asked.append({**row, "between_token_ids": between, "reply_token_ids": reply})
    found = {row["prompt_id"]: row for row in fleet.reply_logprobs(asked, policy, dialogue)} if asked else {}
    for row in rows:
        yield {
            "prompt_id": row["prompt_id"],
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "kind": kind,
            "document_id": row["document_id"],
            "is_source": row["document_id"] == source[row["task_id"]],
            **{name: found[row["prompt_id"]][name] for name in ("logprob", "num_tokens", "error")},
        }


def _last_replies(rollouts: Tables, ids: set[str]) -> dict[str, tuple[list[int], list[int]]]:
    found, wanted = {}, pc.field("rollout_id").isin(pa.array(sorted(ids), pa.string()))
    for table in [rollouts] if isinstance(rollouts, Table) else rollouts:
        rows = table.arrow.select(["rollout_id", "turns"]).filter(wanted)
        found |= {row["rollout_id"]: last_reply(row["turns"]) for row in rows.to_pylist()}
    return found
