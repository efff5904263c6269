"""Draw documents for prompts: seeded, without replacement until the corpus is used up."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.draft import hash_json
from warehouse.schemas import SAMPLES
from warehouse.store import Table


@stage(SAMPLES)
def sample(
    documents: Table,
    *,
    num_samples: int,
    task_types: Sequence[str] | None = None,
    search_turns: Mapping[int, int] | None = None,
    seed: int,
    epoch: str = "",
    skip: int = 0,
    all_different: bool = False,
) -> Rows:
    """Yield `num_samples` documents. With `task_types` each has one of them, drawn uniformly; with
    `search_turns` each has a number of required search turns.

    Documents come in a seeded order of the whole corpus; `skip` of them were drawn before in the
    same `epoch`. When the corpus is used up, drawing continues in a new order. With `all_different`
    no document comes twice in one draw, unless there are fewer documents than `num_samples`; all
    draws of an epoch must then have the same `num_samples`. `search_turns` maps numbers of turns to
    shares (`{1: 4, 2: 3, 3: 2}`), allotted by largest remainder, then shuffled. Raises ValueError
    for a corpus without usable documents.
    """
    ids = pa.chunked_array(_usable(documents), pa.string())
    if not len(ids):
        raise ValueError(f"{documents.address} has no usable document to sample from")
    rng = random.Random(hash_json([seed, epoch, skip, num_samples]))
    turns = allot(search_turns, num_samples) if search_turns else [None] * num_samples
    rng.shuffle(turns)
    size = num_samples if all_different and num_samples <= len(ids) else 1
    drawn = _draw(ids, seed, epoch, skip, size)
    for i, (num_turns, document_id) in enumerate(zip(turns, drawn, strict=False)):
        yield {
            "sample_id": hash_json([seed, epoch, skip + i]),
            "document_id": document_id,
            "task_type": rng.choice(list(task_types)) if task_types else None,
            "search_turns": num_turns,
        }


@stage(SAMPLES)
def nearest(documents: Table, tasks: Tables, *, chosen: Sequence[str], most: int) -> Rows:
    """Yield up to `most` documents for each `chosen` task: the first hits of a search for its text,
    in order. A sample's id is the task's id and the rank. Without an index, yield nothing."""
    from corpus_prep.search.index import load_index

    text_of = {row["task_id"]: row["text"] for row in rows_of(tasks) if row["text"] is not None}
    folder = documents.files / "index"
    if not (chosen and folder.is_dir()):
        return
    # on a GPU, the flow's process would keep the model's memory during generation and updates
    index = load_index(folder, verify=False, default_device="cpu")
    rankings = index.search([text_of[task_id] for task_id in chosen], most)
    for task_id, hits in zip(chosen, rankings, strict=True):
        for rank, hit in enumerate(hits):
            yield {"sample_id": f"{task_id}-{rank}", "document_id": hit.document_id}


def _usable(documents: Table) -> Iterator[pa.Array]:
    for batch in documents.batches(["document_id", "dropped_reason"]):
        yield batch["document_id"].filter(batch["dropped_reason"].is_null())


def allot(shares: Mapping[int, int], total: int) -> list[int]:
    """Split `total` by shares with the largest remainder method: each key is repeated as often as
    its share allows.

    >>> allot({1: 4, 2: 3, 3: 2}, 10)
    [1, 1, 1, 1, 1, 2, 2, 2, 3, 3]
    """
    weight = sum(shares.values())
    quotas = {key: total * share / weight for key, share in shares.items()}
    counts = {key: int(quota) for key, quota in quotas.items()}
    by_remainder = sorted(shares, key=lambda key: (counts[key] - quotas[key], key))
    for key in by_remainder[: total - sum(counts.values())]:
        counts[key] += 1
    return [key for key in sorted(shares) for _ in range(counts[key])]


def batches_needed(missing: float, size: int, most: int) -> int:
    """The number of batches of `size` candidates to draw at once while `missing` items are wanted.

    It is the number needed if every candidate is kept, so no batch is drawn in vain; at most
    `most`.

    >>> [batches_needed(missing, 500, 8) for missing in (5120, 1195, 20)]
    [8, 3, 1]
    """
    return min(math.ceil(missing / size), most)


def _draw(ids: pa.ChunkedArray, seed: int, epoch: str, skip: int, size: int) -> Iterator[str]:
    """Yield the documents after the first `skip`; the `size` documents of one draw all differ."""
    first_lap, start = divmod(skip, len(ids))
    for order in itertools.islice(_orders(len(ids), seed, epoch, size), first_lap, None):
        yield from (ids[int(i)].as_py() for i in order[start:])
        start = 0


def _orders(count: int, seed: int, epoch: str, size: int) -> Iterator[np.ndarray]:
    """Yield the order of each lap over `count` documents, of which `size` are drawn at once.

    The last draw of a lap may end in the next lap: the documents it has already taken come last
    there.
    """
    taken = np.array([], dtype=int)
    for lap in itertools.count():
        order = np.random.default_rng(int(hash_json([seed, epoch, lap]), 16)).permutation(count)
        comes_last = np.isin(order, taken)
        order = np.concatenate([order[~comes_last], order[comes_last]])
        yield order
        taken = order[count - (lap + 1) * count % size :]
