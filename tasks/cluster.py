"""Documents to vectors, vectors to clusters: what belongs together is found by meaning.

embeddings  = embed_documents(place, documents, screened=[near, clean], embedding=embedding)
memberships = cluster_documents(place, embeddings, settings=Clustering())
clusters    = describe_clusters(place, documents, memberships)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpus_prep.cluster import Clustering, cluster
from corpus_prep.index import EmbeddingConfig
from corpus_prep.keywords import keywords
from tasks.stage import Rows, stage
from warehouse.corpus_schemas import CLUSTERS, EMBEDDINGS, MEMBERSHIPS
from warehouse.draft import Draft, Shards
from warehouse.store import Table

log = logging.getLogger("selfplay")
VECTORS = "vectors.npy"


@stage(EMBEDDINGS)
def embed_documents(
    documents: Table, *, screened: Sequence[Table] = (), embedding: EmbeddingConfig, draft: Draft, shards: Shards
) -> Rows:
    """Yield the documents that no screening dropped, with the rows of their vectors in `vectors.npy`.

    Vectors are kept every few thousand documents: after a kill only the others are computed.
    """
    from corpus_prep.encoder import TEXTS_AT_ONCE, Encoder, join_vectors, write_shard

    encoder, files, row = None, [], 0
    shards.folder.mkdir(parents=True, exist_ok=True)
    for batch in kept_documents(documents.paths(), paths_of(screened), rows=TEXTS_AT_ONCE):
        first, last = (batch["document"][at].as_py() for at in (0, -1))
        files.append(shards.folder / f"vectors-{first:010d}-{last:010d}.npy")
        if not files[-1].exists():
            encoder = encoder or Encoder(embedding)
            began = time.monotonic()
            titles_and_texts = zip(batch["title"].to_pylist(), batch["text"].to_pylist(), strict=True)
            write_shard(encoder, titles_and_texts, files[-1])
            pace = batch.num_rows / max(time.monotonic() - began, 1e-9)
            log.info("embedded %d documents, %.0f a second", row + batch.num_rows, pace)
        yield pa.table({"document_id": batch["document_id"], "row": np.arange(row, row + batch.num_rows)})
        row += batch.num_rows
    if not row:
        raise ValueError(f"no document of {documents.address} is left to embed: see the screenings' reasons.")
    join_vectors((np.load(file, mmap_mode="r") for file in files), row, draft.files / VECTORS)


@stage(MEMBERSHIPS)
def cluster_documents(embeddings: Table, *, settings: Clustering) -> Rows:
    """Yield every embedded document with its cluster."""
    found = cluster(np.load(embeddings.files / VECTORS, mmap_mode="r"), settings)
    columns = {"cluster": found.cluster, "parent": found.cell[found.cluster], "similarity": found.similarity}
    yield pa.table({"document_id": embeddings.arrow["document_id"], **columns})


@stage(CLUSTERS)
def describe_clusters(documents: Table, memberships: Table) -> Rows:
    """Yield every cluster with what people know it by."""
    yield from keywords(documents.paths(), memberships.paths())


def paths_of(tables: Sequence[Table]) -> list:
    return [path for table in tables for path in table.paths()]
