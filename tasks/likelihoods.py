"""Score stored replies under prompts other than their own, with one forward pass each."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tasks.ask import readable
from tasks.engines.chat import ChatFleet
from tasks.engines.fleet import Fleet
from tasks.models.engine import Policy
from tasks.readers.malformed import Malformed
from tasks.rollouts.replies import reply_logprobs
from tasks.rollouts.rollout import Dialogue
from tasks.rollouts.tokens import element_ids
from tasks.stage import Rows, Tables, as_tables, rows_of, stage
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
    """Yield for every prompt the log-probability, under `policy`, of the content of the last
    `<element>` in the rollout that the prompt names.

    The rollout's thoughts, searches and other words are left out of the scored text: they would
    reveal its own document. The content keeps its sampled tokens and follows only its opening tag.

    A prompt names a rollout, a task and the document it shows; `is_source` marks the task's own
    document. `kind` says what the replies are.
    """
    rows = prompts.rows()
    source_of = {task["task_id"]: task["document_id"] for task in rows_of(tasks, Task)}
    content_of = _contents(rollouts, {row["rollout_id"] for row in rows}, policy.weights, element)
    with_replies = [
        {**row, **content_of[row["rollout_id"]]} for row in rows if row["rollout_id"] in content_of
    ]
    score_of: dict[str, Row] = {}
    if with_replies:
        scores = fleet.reply_logprobs(with_replies, policy, dialogue)
        score_of = {score["prompt_id"]: score for score in scores}
    missing = {"logprob": None, "num_tokens": 0, "error": f"no {element} element"}
    for row in rows:
        score = score_of.get(row["prompt_id"], missing)
        yield {
            "prompt_id": row["prompt_id"],
            "rollout_id": row["rollout_id"],
            "task_id": row["task_id"],
            "kind": kind,
            "document_id": row["document_id"],
            "is_source": row["document_id"] == source_of[row["task_id"]],
            "logprob": score["logprob"],
            "num_tokens": score["num_tokens"],
            "error": score["error"],
        }


def _contents(
    rollouts: Tables, ids: set[str], model: str, element: str
) -> dict[str, dict[str, list[int]]]:
    """The element's opening tag and content, from the last turn of each rollout that has the
    element."""
    content_of = {}
    wanted = pc.field("rollout_id").isin(pa.array(sorted(ids), pa.string()))
    for table in as_tables(rollouts):
        for row in table.arrow.select(["rollout_id", "turns"]).filter(wanted).to_pylist():
            with contextlib.suppress(Malformed):
                tag, content = element_ids(row["turns"][-1]["sampled_token_ids"], model, element)
                content_of[row["rollout_id"]] = {
                    "between_token_ids": tag,
                    "reply_token_ids": content,
                }
    return content_of


# ---- which tasks, under which documents ----


def choose(
    selections: Sequence[Selection], tasks: Sequence[Task], most: int, seed: int
) -> list[str]:
    """Ids of up to `most` readable tasks, kept ones first, otherwise in a seeded order."""
    kept = {row["task_id"] for row in selections if row["kept"]}
    order = {task["task_id"]: hash_json([seed, task["task_id"]]) for task in readable(tasks)}
    return sorted(order, key=lambda task_id: (task_id not in kept, order[task_id]))[:most]


def with_documents(
    tasks: list[Task], near: list[Sample], drawn: list[Sample], *, chosen: Sequence[str], most: int
) -> Iterator[Row]:
    """The chosen tasks in order, each with up to `most` documents: its own, then the rest of its
    evidence, then the nearest ones, then drawn ones."""
    task_of = {task["task_id"]: task for task in tasks}
    near_of = documents_by_task(near)
    for task_id in chosen:
        if task_id not in task_of:
            continue
        task = task_of[task_id]
        evidence = list(task["evidence"] or [])[1:]  # without the task's own document
        others = [row["document_id"] for row in drawn]
        random.Random(task_id).shuffle(others)
        candidates = dict.fromkeys(
            [task["document_id"], *evidence, *near_of.get(task_id, ()), *others]
        )
        for document_id in list(candidates)[:most]:
            kept = [document_id, *(other for other in evidence if other != document_id)]
            yield {**task, "document_id": document_id, "evidence": kept}


def documents_by_task(near: Sequence[Sample]) -> Mapping[str, list[str]]:
    """The documents near each task, the nearest first."""
    documents_of: dict[str, list[str]] = {}
    for row in near:
        task_id = row["sample_id"].rpartition("-")[0]  # the sample's id ends in "-<rank>"
        documents_of.setdefault(task_id, []).append(row["document_id"])
    return documents_of
