"""Clusters of a prepared corpus: choose, read and draw from them, and remember their tasks."""

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
from tasks.stage import Rows, Tables, as_tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import (
    DOCUMENTS,
    MEMBERSHIPS,
    MEMORIES,
    SAMPLES,
    Membership,
    Memory,
    Row,
    Sample,
)
from warehouse.store import Table


@stage(MEMBERSHIPS)
def choose_clusters(
    memberships: Table, *, num_clusters: int | None, skip: int = 0, shift: int = 0, seed: int = 0
) -> Rows:
    """Yield the memberships of `num_clusters` clusters: the first in a seeded order after `skip`
    others. None takes all clusters.

    `shift` is added to cluster numbers, to keep the clusters of two corpora apart. Raises
    ValueError if there are too few clusters.
    """
    clusters = np.unique(memberships.arrow["cluster"].to_numpy())
    num_needed = skip + (num_clusters or 1)
    if len(clusters) < num_needed:
        raise ValueError(
            f"{memberships.address} has {len(clusters)} clusters, but {num_needed} are wanted:"
            " lower that"
        )
    chosen = clusters
    if num_clusters is not None:
        order = np.random.default_rng(seed).permutation(len(clusters))
        chosen = clusters[order[skip : skip + num_clusters]]
    rows = memberships.arrow.filter(pc.field("cluster").isin(pa.array(chosen)))
    column = rows.schema.get_field_index("cluster")
    shifted = pa.array(rows["cluster"].to_numpy() + shift, pa.int32())
    yield rows.set_column(column, rows.schema.field(column), shifted)


@stage(MEMBERSHIPS)
def each_its_own(documents: Table) -> Rows:
    """Yield every document as a cluster of one."""
    for number, row in enumerate(documents.rows()):
        yield {"document_id": row["document_id"], "cluster": number, "similarity": 1.0}


@stage(DOCUMENTS)
def documents_of(documents: Tables, memberships: Tables, *, samples: Table | None = None) -> Rows:
    """Yield the documents of all clusters of `memberships`, or only of the clusters that `samples`
    drew from.

    The corpus is read in batches and may be larger than memory.
    """
    members = rows_of(memberships, Membership)
    if samples is not None:
        drawn = {row["cluster"] for row in samples.rows(Sample)}
        members = [row for row in members if row["cluster"] in drawn]
    ids = pa.array({row["document_id"] for row in members}, pa.string())
    is_member = pc.field("document_id").isin(ids)
    for table in as_tables(documents):
        for batch in table.batches():
            yield pa.Table.from_batches([batch]).filter(is_member)


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
    """Yield `num_samples` clusters, divided equally among the task types, each with documents drawn
    from it.

    `memberships` maps each task type to its clusters, with documents in corpus order. Clusters come
    in a seeded order and repeat only after all have been drawn; `num_before` draws of this size
    were made before. Documents that `memory` holds for the same cluster and type are avoided; once
    it holds all documents of a cluster, any of them may be drawn.
    """
    # Example: 10 samples of two task types are 5 of each type. With num_before=1 earlier draw of
    # this size, each type takes clusters 5 to 9 of its own seeded order.
    remembered: dict[tuple[int, str], set[str]] = defaultdict(set)
    if memory is not None:
        for row in memory.rows(Memory):
            remembered[row["cluster"], row["task_type"]].update(row["document_ids"])
    shares = allot(dict.fromkeys(range(len(memberships)), 1), num_samples)
    for number, (task_type, table) in enumerate(memberships.items()):
        members = members_of(table.rows(Membership))
        share = shares.count(number)
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
    """The i-th draw without replacement, in laps over all clusters, each lap in its own order."""
    lap, place = divmod(i, len(clusters))
    rng = np.random.default_rng(int(hash_json([seed, task_type, lap]), 16))
    order = rng.permutation(len(clusters))
    return clusters[order[place]]


def members_of(memberships: Iterable[Mapping[str, Any]]) -> dict[int, list[str]]:
    """The ids of the documents in each cluster, in row order."""
    members: dict[int, list[str]] = defaultdict(list)
    for row in memberships:
        members[row["cluster"]].append(row["document_id"])
    return dict(members)


def answer_text(task: Row) -> str:
    """The reference of a task; for multiple choice, the right option's text, not its letter.

    >>> answer_text({"reference": "B", "options": ["red", "blue"]})
    'blue'
    >>> answer_text({"reference": "B", "options": None})
    'B'
    """
    if not task["options"]:
        return task["reference"]
    return task["options"][ord(task["reference"]) - ord("A")]


@stage(MEMORIES)
def remember(
    memory: Table | None,
    tasks: Tables,
    rewards: Tables,
    samples: Tables,
    prompts: Tables,
    *,
    component: str,
    low: float,
    high: float,
    most: int,
) -> Rows:
    """Yield `memory` plus the tasks whose `component` lies strictly between `low` and `high`.

    Each cluster and type keeps its latest `most` tasks, oldest first. A task whose text or
    reference is already there is not added. For multiple choice, the text of the right option is
    remembered, not its letter. `prompts` link tasks to the samples they were written about.
    """
    entries: list[Row] = memory.rows() if memory else []
    num_old = len(entries)
    value_of = {row["rollout_id"]: row["components"].get(component) for row in rows_of(rewards)}
    sample_by_id = {row["sample_id"]: row for row in rows_of(samples)}
    sample_of_prompt = {
        row["prompt_id"]: sample_by_id[row["sample_id"]] for row in rows_of(prompts)
    }
    for task in rows_of(tasks):
        value = value_of.get(task["task_id"])
        if value is None or value <= low or value >= high:
            continue
        sample = sample_of_prompt[task["prompt_id"]]
        entries.append(
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
    reasons = leaving(entries, num_old, rules)
    staying = [entry for entry, why in zip(entries, reasons, strict=True) if why is None]
    next_place: Counter[tuple[int, str]] = Counter()
    for entry in sorted(staying, key=lambda entry: (entry["cluster"], entry["task_type"])):
        group = entry["cluster"], entry["task_type"]
        yield {**entry, "place": next_place[group]}
        next_place[group] += 1
