"""Raw text to a corpus to learn from, once: clean, without duplicates, without evaluation sets, clustered, indexed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from prefect import flow

from flows import workbench
from flows.corpus.config import CorpusConfig, load_profile
from flows.prepared import PREPARED
from flows.workbench import Redo, Request, open_place
from tasks.cluster import cluster_documents, describe_clusters, embed_documents
from tasks.corpus import corpus_identity, gather, settle
from tasks.dedup import (
    band_documents,
    find_duplicates,
    screen_exact_duplicates,
    screen_near_duplicates,
)
from warehouse.store import Place, Table


@flow(name="prepare-corpus", persist_result=False)
def prepare_corpus(
    profile: str = "text",
    run: str | None = None,
    overrides: dict[str, Any] | None = None,
    corpus: str | None = None,
    redo: Redo | None = None,
    force: bool = False,
) -> str:
    """Prepare the documents at `corpus`; returns the run's name, under which flows take it. The same call again goes
    on where it stopped."""
    asked = Request(flow="prepare-corpus", profile=profile, run=run or profile, overrides=overrides, corpus=corpus)
    cfg = load_profile(profile, asked.settings)
    with open_place(asked, cfg, redo, force) as place:
        prepare(cfg, place)
    return asked.run


@dataclass(frozen=True)
class Corpus:
    """Documents as they were read, and what the steps so far say of them."""

    documents: Table
    screened: tuple[Table, ...] = ()


def prepare(cfg: CorpusConfig, place: Place) -> Table:
    """Read, drop duplicates and evaluation sets, embed and cluster, index: the documents that stay."""
    documents = gather(
        place,
        cfg.corpus,
        identity=corpus_identity(cfg.corpus),
        columns=cfg.columns,
        max_chars=cfg.max_document_chars,
        rules=cfg.quality,
    )
    corpus = drop_duplicates(cfg, place, Corpus(documents))
    embeddings = cluster(cfg, place, corpus)
    return settle(
        place,
        documents,
        screened=corpus.screened,
        embeddings=embeddings,
        embedding=cfg.embedding,
        search=cfg.search,
        label=PREPARED,
    )


def drop_duplicates(cfg: CorpusConfig, place: Place, corpus: Corpus) -> Corpus:
    """Of equal documents one stays, then of similar ones."""
    how, documents, screened = cfg.duplicates, corpus.documents, corpus.screened
    if how.exact:
        exact = screen_exact_duplicates(
            place, documents, screened=screened, keep=how.keep, workers=cfg.workers, label="exact"
        )
        screened = (*screened, exact)
    if how.near is None:
        return Corpus(documents, screened)
    bands = band_documents(place, documents, screened=screened, settings=how.near, workers=cfg.workers)
    pairs = find_duplicates(
        place,
        documents,
        bands,
        screened=screened,
        settings=how.near,
        comparing=how.comparing,
        canaries=cfg.canaries,
        seed=cfg.seed,
        workers=cfg.workers,
    )
    near = screen_near_duplicates(
        place, documents, pairs, screened=screened, threshold=how.near.threshold, keep=how.keep, label="near"
    )
    return Corpus(documents, (*screened, near))


def cluster(cfg: CorpusConfig, place: Place, corpus: Corpus) -> Table | None:
    """The vectors of the documents that are left, where there is a model; and what belongs together."""
    if cfg.embedding is None:
        return None
    embeddings = embed_documents(place, corpus.documents, screened=corpus.screened, embedding=cfg.embedding)
    if cfg.clusters is not None:
        memberships = cluster_documents(place, embeddings, settings=cfg.clusters)
        describe_clusters(place, corpus.documents, memberships)
    return embeddings


inquire = functools.partial(workbench.inquire_place, play=prepare)  # what `selfplay why` asks
