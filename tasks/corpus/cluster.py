"""Turn documents into vectors and vectors into clusters: documents are grouped by meaning.

embeddings  = embed_documents(place, documents, embedding=embedding)
memberships = cluster_documents(place, embeddings, settings=Clustering())
clusters    = describe_clusters(place, documents, memberships)
measure_clusters(place, embeddings, memberships, settings=Clustering(), label="clusters")
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from corpus_prep.clusters.keywords import keywords
from corpus_prep.clusters.kmeans import Clustering, cluster
from corpus_prep.search.settings import EmbeddingConfig
from tasks.corpus.steps import corpus_of, costs, folder_of, measured
from tasks.stage import Rows, stage
from warehouse.draft import Draft, Shards
from warehouse.schemas import CLUSTERS, EMBEDDINGS, MEASUREMENTS, MEMBERSHIPS, Measurement
from warehouse.store import Table

log = logging.getLogger("selfplay")
VECTORS = "vectors.npy"


@stage(EMBEDDINGS)
def embed_documents(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    embedding: EmbeddingConfig,
    draft: Draft,
    shards: Shards,
    address: str,
) -> Rows:
    """Yield the documents that no screening dropped, with the row numbers of their vectors in
    `vectors.npy`.

    Vectors are saved every few seconds: after a kill, only missing ones are computed.

    Raises ValueError if no document is left to embed.
    """
    from corpus_prep.search.encoder import Encoder, free_gpu_memory, join_vectors, write_vectors

    corpus = corpus_of(documents, screened)
    encoder = None
    files = []
    row = 0
    total = int(corpus.counts.sum())
    for shard in corpus.shards(folder_of(shards), "vectors"):
        if not shard.out.exists():
            encoder = encoder or Encoder(embedding)
            write_vectors(encoder, shard, _told(address, row, total))
        files.append(shard.out)
        for _, batch in shard.batches(["document_id"]):
            yield pa.table(
                {"document_id": batch["document_id"], "row": np.arange(row, row + batch.num_rows)}
            )
            row += batch.num_rows
    if not files:
        raise ValueError(
            f"no document of {documents.address} is left to embed: see why they were dropped."
        )
    del encoder
    free_gpu_memory()
    join_vectors((np.load(file, mmap_mode="r") for file in files), row, draft.files / VECTORS)


def _told(address: str, before: int, total: int) -> Callable[[int], None]:
    """A function that logs the progress of embedding `total` documents, of which `before` were done
    before this shard."""
    began = time.monotonic()
    first = None

    def tell(done: int) -> None:
        nonlocal first
        first = done if first is None else first  # done in an earlier attempt, or in the first part
        speed = (done - first) / max(time.monotonic() - began, 1e-9)
        log.info(
            "%s: %d of %d documents embedded, %.0f a second", address, before + done, total, speed
        )

    return tell


@stage(MEMBERSHIPS)
def cluster_documents(embeddings: Table, *, settings: Clustering) -> Rows:
    """Yield every embedded document with its cluster."""
    clustering = cluster(np.load(embeddings.files / VECTORS, mmap_mode="r"), settings)
    columns = {
        "cluster": clustering.cluster,
        "parent": clustering.cell[clustering.cluster],
        "similarity": clustering.similarity,
    }
    yield pa.table({"document_id": embeddings.arrow["document_id"], **columns})


@stage(MEMBERSHIPS)
def group_documents(
    documents: Table, *, screened: Sequence[Table] = (), by: str = "document_id"
) -> Rows:
    """Yield every document that no screening dropped. Documents with the same value in column `by`
    form a cluster. A document with an empty value is a cluster of its own, as is every document if
    `by` is its id."""
    number_of: dict[tuple[bool, str], int] = {}
    for batch in corpus_of(documents, screened).batches(list(dict.fromkeys(("document_id", by)))):
        ids = batch["document_id"].to_pylist()
        keys = [
            (bool(value), value or one)
            for value, one in zip(batch[by].to_pylist(), ids, strict=True)
        ]
        numbers = np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.int32)
        columns = {"cluster": numbers, "similarity": np.ones(batch.num_rows, np.float32)}
        yield pa.table(
            {
                "document_id": batch["document_id"],
                **columns,
                "parent": pa.nulls(batch.num_rows, pa.int32()),
            }
        )


@stage(CLUSTERS)
def describe_clusters(documents: Table, memberships: Table) -> Rows:
    """Yield every cluster with a description for people."""
    yield from keywords(documents.paths(), memberships.paths())


@stage(MEASUREMENTS)
def measure_clusters(
    embeddings: Table, memberships: Table, *, settings: Clustering
) -> Iterator[Measurement]:
    """Yield what embedding and clustering did and cost, and the number of clusters by size, in
    steps of half the target size."""
    rows = memberships.arrow
    sizes = np.bincount(rows["cluster"].to_numpy())
    of_document = sizes[rows["cluster"].to_numpy()]
    smallest, largest = settings.bounds
    numbers = {
        "documents": memberships.num_rows,
        "clusters": len(sizes),
        "clusters within bounds": float(np.mean((sizes >= smallest) & (sizes <= largest))),
        "documents within bounds": float(
            np.mean((of_document >= smallest) & (of_document <= largest))
        ),
        "mean similarity": float(np.mean(rows["similarity"].to_numpy())),
    }
    step = settings.size / 2
    steps, counts = np.unique(sizes // step, return_counts=True)
    yield from measured("embeddings", costs(embeddings))
    yield from measured("clusters", costs(memberships))
    yield from measured("clusters", numbers.items())
    bins = zip(steps, counts, strict=True)
    yield from measured(
        "clusters", ((f"clusters from {start * step:.0f} documents", n) for start, n in bins)
    )
