"""The documents a method learns from: a prepared corpus by the name of its run, or files as they are."""

from __future__ import annotations

from pathlib import Path

from corpus_prep.read.hub import is_dataset
from corpus_prep.search.settings import EmbeddingConfig
from tasks.corpus.documents import corpus_identity, read_documents, take
from tasks.corpus.long_context import clusters_of_sets
from warehouse.schemas.corpus import DOCUMENT_SETS, MEMBERSHIPS
from warehouse.store import Place, Store, Table

PREPARED = "prepared"  # the label of a prepared corpus' last table


def open_documents(place: Place, corpus: str, embedding: EmbeddingConfig | None) -> Table:
    """Documents with their index. Raises ValueError where there is neither a path nor a prepared corpus."""
    if Path(corpus).exists() or is_dataset(corpus):
        return read_documents(place, corpus, identity=corpus_identity(corpus), embedding=embedding)
    return take(place, prepared_corpus(place.store, corpus))


def prepared_corpus(store: Store, run: str) -> Table:
    """The documents that a run of prepare-corpus ended with. Raises ValueError if there is no such run."""
    table = store.find(store.run(run).address("documents", PREPARED))
    if table is None:
        raise ValueError(
            f"corpus {run} is no path and no prepared corpus: give a file or folder, hf:owner/name?revision=..., or "
            "the name of a finished run of prepare-corpus"
        )
    return table


def open_clusters(place: Place, run: str) -> Table:
    """Which documents of a prepared corpus belong together: its document sets, where it has made some of its present
    clusters, each a cluster of its own; else the clusters. Raises ValueError if there are none."""
    memberships = place.store.find(place.store.run(run).address(MEMBERSHIPS.name))
    if memberships is None:
        raise ValueError(f"corpus {run} has no clusters: prepare it with an embedding model and clusters.size")
    sets = place.store.find(place.store.run(run).address(DOCUMENT_SETS.name))
    if sets is None or sets.recipe["inputs"]["memberships"]["content_hash"] != memberships.content_hash:
        return memberships
    return clusters_of_sets(place, sets, memberships, label=f"sets-of-{run}")
