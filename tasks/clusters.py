"""Clusters of a prepared corpus: choose them, read and draw their documents, remember the tasks written about each."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.pool import PoolRules, leaving
from tasks.sample import allot
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import DOCUMENTS, MEMBERSHIPS, MEMORIES, SAMPLES, Membership, Memory, Row, Sample
from warehouse.store import Table


@stage(MEMBERSHIPS)
def choose_clusters(
    memberships: Table, *, num_clusters: int | None, skip: int = 0, shift: int = 0, seed: int = 0
) -> Rows:
    """Yield the memberships of `num_clusters` clusters in a seeded order, after `skip` others; None takes all.

    `shift` is added to their numbers, to keep the clusters of two corpora apart. Raises ValueError if there are too few
    clusters.
    """
    clusters = np.unique(memberships.arrow["cluster"].to_numpy())
    if len(clusters) < skip + (num_clusters or 1):
        wanted = skip + (num_clusters or 1)
        raise ValueError(f"{memberships.address} has {len(clusters)} clusters, but {wanted} are wanted: lower that")
    order = np.random.default_rng(seed).permutation(len(clusters))
    wanted = clusters if num_clusters is None else clusters[order[skip : skip + num_clusters]]
    rows = memberships.arrow.filter(pc.field("cluster").isin(pa.array(wanted)))
    at = rows.schema.get_field_index("cluster")
    yield rows.set_column(at, rows.schema.field(at), pa.array(rows["cluster"].to_numpy() + shift, pa.int32()))


@stage(MEMBERSHIPS)
def each_its_own(documents: Table) -> Rows:
    """Yield every document as a cluster of one."""
    for number, row in enumerate(documents.rows()):
        yield {"document_id": row["document_id"], "cluster": number, "similarity": 1.0}


@stage(DOCUMENTS)
def documents_of(documents: Tables, memberships: Tables, *, samples: Table | None = None) -> Rows:
    """Yield the documents of all clusters of `memberships`, or only of the clusters that `samples` drew from.

    The corpus is read in batches and may be larger than memory.
    """
    wanted = rows_of(memberships, Membership)
    if samples is not None:
        drawn = {row["cluster"] for row in samples.rows(Sample)}
        wanted = [row for row in wanted if row["cluster"] in drawn]
    among = pc.field("document_id").isin(pa.array({row["document_id"] for row in wanted}, pa.string()))
    tables = [documents] if isinstance(documents, Table) else documents
    for table in tables:
        for batch in table.batches():
            yield pa.Table.from_batches([batch]).filter(among)


@stage(SAMPLES)
def draw(
    memberships: Mapping[str, Table],
    memory: Table | None,
    *,
    num_samples: int,
    documents_per_sample: int,
    seed: int,
    num_before: int = 0,
) -> Rows:
    """Yield `num_samples` clusters, in equal shares of the task types, each with documents drawn from it.

    `memberships` maps each task type to its clusters, documents in the order of the corpus. Clusters come in a seeded
    order, none twice before all were drawn; `num_before` draws of this size were made before. Documents in `memory` for
    their cluster and type are avoided; once all of a cluster's are in it, any of them may come.
    """
    remembered: dict[tuple[int, str], set[str]] = defaultdict(set)
    for row in memory.rows(Memory) if memory else []:
        remembered[row["cluster"], row["task_type"]].update(row["document_ids"])
    shares = allot(dict.fromkeys(range(len(memberships)), 1), num_samples)
    for number, (task_type, table) in enumerate(memberships.items()):
        members, share = members_of(table.rows(Membership)), shares.count(number)
        for i in range(share * num_before, share * (num_before + 1)):
            cluster = _nth(sorted(members), seed, task_type, i)
            known = remembered[cluster, task_type]
            new = [d for d in members[cluster] if d not in known] or members[cluster]
            rng = random.Random(hash_json([seed, task_type, i]))
            drawn = set(rng.sample(new, min(documents_per_sample, len(new))))
            in_order = [d for d in members[cluster] if d in drawn]
            yield {
                "sample_id": hash_json([seed, task_type, i]),
                "document_id": in_order[0],
                "task_type": task_type,
                "cluster": cluster,
                "document_ids": in_order,
            }


def _nth(clusters: Sequence[int], seed: int, task_type: str, i: int) -> int:
    """The i-th draw without replacement, in laps over all clusters, each in an order of its own."""
    lap, at = divmod(i, len(clusters))
    order = np.random.default_rng(int(hash_json([seed, task_type, lap]), 16)).permutation(len(clusters))
    return clusters[order[at]]


def members_of(memberships: Iterable[Mapping[str, Any]]) -> dict[int, list[str]]:
    """Ids of the documents by cluster, in the order of the rows."""
    members: dict[int, list[str]] = defaultdict(list)
    for row in memberships:
        members[row["cluster"]].append(row["document_id"])
    return dict(members)


def answer_text(task: Row) -> str:
    """
    >>> answer_text({"reference": "B", "options": ["red", "blue"]}), answer_text({"reference": "B", "options": None})
    ('blue', 'B')
    """
    return task["options"][ord(task["reference"]) - ord("A")] if task["options"] else task["reference"]


@stage(MEMORIES)
def remember(
    memory: Table | None,
    tasks: Tables,
    scores: Tables,
    samples: Tables,
    prompts: Tables,
    *,
    component: str,
    low: float,
    high: float,
    most: int,
) -> Rows:
    """Yield `memory` plus the tasks whose `component` lies strictly between `low` and `high`.

    Each cluster and type keeps its `most` recent tasks, the oldest first. A task whose text or reference is already
    there is not added again. For multiple choice the text of the right option is remembered, not its letter.
    `prompts` link tasks to the samples that they were written about.
    """
    pairs = memory.rows() if memory else []
    num_old = len(pairs)
    measured = {row["rollout_id"]: row["components"].get(component) for row in rows_of(scores)}
    drawn = {row["sample_id"]: row for row in rows_of(samples)}
    sample_of = {row["prompt_id"]: drawn[row["sample_id"]] for row in rows_of(prompts)}
    for task in rows_of(tasks):
        value = measured.get(task["task_id"])
        if value is not None and low < value < high:
            sample = sample_of[task["prompt_id"]]
            pairs.append(
                {
                    "cluster": sample["cluster"],
                    "task_type": sample["task_type"],
                    "task_id": task["task_id"],
                    "text": task["text"],
                    "reference": answer_text(task),
                    "document_ids": sample["document_ids"],
                }
            )
    rules = PoolRules(per=("cluster", "task_type"), unique=("text", "reference"), max_size=most)
    places: Counter[tuple[int, str]] = Counter()
    staying = [pair for pair, why in zip(pairs, leaving(pairs, num_old, rules), strict=True) if why is None]
    for pair in sorted(staying, key=lambda pair: (pair["cluster"], pair["task_type"])):
        group = pair["cluster"], pair["task_type"]
        yield {**pair, "place": places[group]}
        places[group] += 1
