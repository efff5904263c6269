"""The documents a method learns from: a prepared corpus by the name of its run, or files as they are."""

from __future__ import annotations

from pathlib import Path

from corpus_prep.hub import is_dataset
from corpus_prep.index import EmbeddingConfig
from tasks.corpus import corpus_identity, read_documents, take
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
