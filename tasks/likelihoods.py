"""How likely stored replies are under other prompts than their own: one forward pass for each."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tasks.ask import readable
from tasks.engines.base import Policy
from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.readers.malformed import Malformed
from tasks.rollouts.replies import reply_logprobs
from tasks.rollouts.rollout import Dialogue
from tasks.rollouts.tokens import element_ids
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import LIKELIHOODS, Row, Sample, Selection, Task
from warehouse.store import Table


@stage(LIKELIHOODS, tools=("fleet",), code=(reply_logprobs,))
def likelihoods(
    prompts: Table,
    rollouts: Tables,
    tasks: Tables,
    *,
    kind: str,
    element: str,
    policy: Policy,
    dialogue: Dialogue,
    fleet: Fleet | ChatFleet,
) -> Rows:
    """Yield for every prompt the log-probability, under `policy`, of what the last `<element>` of the rollout that it
    names holds, said at once: no thought, search or word before it, for these tell of the rollout's own document.

    Prompts name a rollout of `rollouts`, a task of `tasks` and the document they show, which is the source where it is
    the task's own. `kind` says what the replies are. The content is as it was sampled, token by token, behind its
    opening tag.
    """
    rows = prompts.rows()
    source = {task["task_id"]: task["document_id"] for task in rows_of(tasks, Task)}
    contents = _contents(rollouts, {row["rollout_id"] for row in rows}, policy.weights, element)
    asked = [{**row, **contents[row["rollout_id"]]} for row in rows if row["rollout_id"] in contents]
    found = {row["prompt_id"]: row for row in fleet.reply_logprobs(asked, policy, dialogue)} if asked else {}
    missing = {"logprob": None, "num_tokens": 0, "error": f"no {element} element"}
    for row in rows:
        yield {
            "prompt_id": row["prompt_id"],
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "kind": kind,
            "document_id": row["document_id"],
            "is_source": row["document_id"] == source[row["task_id"]],
            **{name: found.get(row["prompt_id"], missing)[name] for name in missing},
        }


def _contents(rollouts: Tables, ids: set[str], model: str, element: str) -> dict[str, dict[str, list[int]]]:
    """The element's opening tag and content in the last turn of each rollout that has it."""
    found, wanted = {}, pc.field("rollout_id").isin(pa.array(sorted(ids), pa.string()))
    for table in [rollouts] if isinstance(rollouts, Table) else rollouts:
        for row in table.arrow.select(["rollout_id", "turns"]).filter(wanted).to_pylist():
            with contextlib.suppress(Malformed):
                tag, content = element_ids(row["turns"][-1]["sampled_token_ids"], model, element)
                found[row["rollout_id"]] = {"between_token_ids": tag, "reply_token_ids": content}
    return found


# ---- which tasks, under which documents ---------------------------------------------------------------------------


def choose(selections: Sequence[Selection], tasks: Sequence[Task], most: int, seed: int) -> list[str]:
    """Ids of `most` tasks, kept ones first, otherwise in a seeded order."""
    kept = {row["task_id"] for row in selections if row["kept"]}
    order = {task["task_id"]: hash_json([seed, task["task_id"]]) for task in readable(tasks)}
    return sorted(order, key=lambda task_id: (task_id not in kept, order[task_id]))[:most]


def with_documents(
    tasks: list[Task], near: list[Sample], drawn: list[Sample], *, chosen: Sequence[str], most: int
) -> Iterator[Row]:
    """The tasks that are chosen, in that order, each with up to `most` documents: its own, then those it came from,
    those like it, and others."""
    task_of = {task["task_id"]: task for task in tasks}
    like = rows_by_task(near)
    for task_id in filter(task_of.__contains__, chosen):
        task = task_of[task_id]
        evidence, others = list(task["evidence"] or [])[1:], [row["document_id"] for row in drawn]
        random.Random(task_id).shuffle(others)
        candidates = dict.fromkeys([task["document_id"], *evidence, *like.get(task_id, ()), *others])
        for document_id in list(candidates)[:most]:
            kept = [document_id, *(other for other in evidence if other != document_id)]
            yield {**task, "document_id": document_id, "evidence": kept}


def rows_by_task(near: Sequence[Sample]) -> Mapping[str, list[str]]:
    """Documents by the task that they are like, the nearest first."""
    found: dict[str, list[str]] = {}
    for row in near:
        found.setdefault(row["sample_id"].rpartition("-")[0], []).append(row["document_id"])
    return found
