"""Turn raw text into a corpus to learn from.

The corpus is clean, free of duplicates and evaluation sets, clustered and indexed.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus_prep.search.settings import check_model
from flows.benchmarks import find
from flows.blocks.corpora import NO_HUB, PREPARED
from flows.corpus.config import Config
from flows.method import method
from flows.run import Run
from flows.runtime.hub import check_reachable
from tasks.benchmarks.items import read_items
from tasks.corpus.cluster import (
    cluster_documents,
    describe_clusters,
    embed_documents,
    group_documents,
    measure_clusters,
)
from tasks.corpus.containment import find_contained, measure_containment, screen_contained
from tasks.corpus.decontaminate import (
    evaluation_identity,
    find_contaminations,
    measure_contaminations,
    read_evaluation_sets,
    screen_contaminated,
)
from tasks.corpus.dedup import (
    band_documents,
    find_duplicates,
    measure_duplicates,
    screen_exact_duplicates,
    screen_near_duplicates,
)
from tasks.corpus.documents import (
    corpus_identity,
    gather,
    measure_reading,
    measure_settling,
    settle,
)
from tasks.corpus.long_context import (
    count_document_tokens,
    make_document_sets,
    measure_long_contexts,
    pad_document_sets,
    split_documents,
)
from tasks.reports.corpus import report_corpus
from tasks.rollouts.tokens import count_tokens
from warehouse.schemas import ITEMS
from warehouse.schemas.corpus import DOCUMENTS, EMBEDDINGS
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")
LOUD_SHARE = 0.01  # of the documents read: a reason that drops more gets a warning
REMEDIES = {
    "too_long": (
        "quality.long='cut' cuts them into pieces, quality.max_chars=null keeps them whole; "
        "max_document_chars is the limit for reading one"
    ),
    "too_short": "quality.min_chars=1 keeps them",
    "low_score": "quality.min_score=null keeps them",
    "other_language": "quality.languages=[] keeps them",
    "unsupported_type": "flows/corpus/README.md lists the supported types",
}


@dataclass(frozen=True)
class Corpus:
    """Documents as they were read, and the screenings by the steps so far."""

    documents: Table
    screened: tuple[Table, ...] = ()


@method(Config)
def prepare_corpus(run: Run[Any]) -> Table:
    """Read, drop duplicates and evaluation sets, embed and cluster, combine, index.

    Returns the documents kept.
    """
    return prepare(run.cfg, run.place)


def prepare(cfg: Config, place: Place) -> Table:
    """The steps of `prepare_corpus`."""
    passages = read_benchmarks(cfg, place)
    check_models(cfg, place)
    check_reachable(cfg.corpus, NO_HUB, place.store.find(place.address(DOCUMENTS.name)))
    documents = gather(
        place,
        cfg.corpus,
        identity=corpus_identity(cfg.corpus),
        columns=cfg.columns,
        max_chars=cfg.max_document_chars,
        rules=cfg.quality,
    )
    measure_reading(place, documents, label="read")
    check_usable(documents)
    corpus = drop_duplicates(cfg, place, Corpus(documents))
    corpus = drop_contained(cfg, place, corpus)
    corpus = drop_evaluation_sets(cfg, place, corpus, passages)
    embeddings = embed(cfg, place, corpus)
    memberships = cluster(cfg, place, corpus, embeddings)
    combine(cfg, place, corpus, memberships)
    prepared = settle(
        place,
        documents,
        screened=corpus.screened,
        embeddings=embeddings,
        embedding=cfg.embedding,
        search=cfg.search,
        label=PREPARED,
    )
    measure_settling(place, prepared, label="index")
    report_corpus(place.store, prepared)
    return prepared


def read_benchmarks(cfg: Config, place: Place) -> Table | None:
    """Read the evaluation sets, before any other work, so that a missing one is noticed early."""
    benchmarks = cfg.contamination.benchmarks
    items = [read_registered(cfg, place, name) for name in cfg.contamination.registry]
    if not benchmarks and not items:
        return None
    return read_evaluation_sets(place, benchmarks, items, identity=evaluation_identity(benchmarks))


def read_registered(cfg: Config, place: Place, name: str) -> Table:
    """The items of a registry entry.

    Raises ValueError for an entry that is unknown or not available.
    """
    benchmark = find(name)
    if benchmark.columns is None:
        raise ValueError(f"only a harness reads {name}: name its file in contamination.benchmarks")
    source, identity = benchmark.located(Path(cfg.contamination.folder))
    way_out = f"name a file of {name} in contamination.benchmarks instead of contamination.registry"
    check_reachable(source, way_out, place.store.find(place.address(ITEMS.name, benchmark.name)))
    return read_items(
        place,
        source,
        identity=identity,
        benchmark=benchmark.name,
        columns=benchmark.columns,
        label=benchmark.name,
    )


def check_models(cfg: Config, place: Place) -> None:
    """Raise ValueError for a model or tokenizer that does not exist, unless its results already
    exist."""
    if cfg.embedding is not None and place.store.find(place.address(EMBEDDINGS.name)) is None:
        check_model(cfg.embedding)
    if cfg.tokenizer is not None and (cfg.long_context.sets or cfg.long_context.segments):
        count_tokens("", cfg.tokenizer)


def check_usable(documents: Table) -> None:
    """Raise ValueError with the reasons if no document is left.

    Logs a warning for a reason that drops many documents.
    """
    reasons = documents.recipe["counts"]
    if sum(reasons.values()) == documents.num_rows:
        named = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
        raise ValueError(
            f"{documents.address}: none of {documents.num_rows} documents is usable: {named}."
            " Change the rules: --set quality.min_chars=1, quality.max_chars=null,"
            " quality.min_score=null"
        )
    for reason, number in sorted(reasons.items(), key=lambda counted: -counted[1]):
        if number > LOUD_SHARE * documents.num_rows:
            remedy = ""
            if reason in REMEDIES:
                remedy = f" ({REMEDIES[reason]})"
            log.warning(
                "%s: %d of %d dropped: %s%s",
                documents.address,
                number,
                documents.num_rows,
                reason,
                remedy,
            )


def drop_duplicates(cfg: Config, place: Place, corpus: Corpus) -> Corpus:
    """Keep one of each group of equal documents, then one of each group of similar ones."""
    settings = cfg.duplicates
    documents = corpus.documents
    screened = corpus.screened
    exact = screen_exact_duplicates(
        place, documents, screened=screened, keep=settings.keep, workers=cfg.workers, label="exact"
    )
    screened = (*screened, exact)
    if settings.near is None:
        return Corpus(documents, screened)
    bands = band_documents(
        place, documents, screened=screened, settings=settings.near, workers=cfg.workers
    )
    pairs = find_duplicates(
        place,
        documents,
        bands,
        screened=screened,
        settings=settings.near,
        comparing=settings.comparing,
        canaries=cfg.canaries,
        seed=cfg.seed,
        workers=cfg.workers,
    )
    near = screen_near_duplicates(
        place,
        documents,
        pairs,
        screened=screened,
        threshold=settings.near.threshold,
        keep=settings.keep,
        label="near",
    )
    measure_duplicates(
        place, exact, bands, pairs, near, threshold=settings.near.threshold, label="duplicates"
    )
    return Corpus(documents, (*screened, near))


def drop_contained(cfg: Config, place: Place, corpus: Corpus) -> Corpus:
    """Drop documents that are contained in longer ones."""
    settings = cfg.duplicates.contained
    if settings is None:
        return corpus
    documents = corpus.documents
    screened = corpus.screened
    containments = find_contained(
        place, documents, screened=screened, settings=settings, workers=cfg.workers
    )
    alone = screen_contained(place, documents, containments, screened=screened, label="contained")
    measure_containment(place, containments, alone, label="containments")
    return Corpus(documents, (*screened, alone))


def drop_evaluation_sets(
    cfg: Config, place: Place, corpus: Corpus, passages: Table | None
) -> Corpus:
    """Drop everything that a model is later tested on."""
    if passages is None:
        return corpus
    documents = corpus.documents
    screened = corpus.screened
    settings = cfg.contamination
    contaminations = find_contaminations(
        place,
        documents,
        passages,
        screened=screened,
        rule=settings.ngrams,
        alignment=settings.alignment,
        likeness=settings.likeness,
        canaries=cfg.canaries,
        seed=cfg.seed,
        workers=cfg.workers,
    )
    clean = screen_contaminated(
        place, documents, contaminations, screened=screened, label="contaminated"
    )
    measure_contaminations(place, passages, contaminations, clean, label="contaminations")
    return Corpus(documents, (*screened, clean))


def embed(cfg: Config, place: Place, corpus: Corpus) -> Table | None:
    """The vectors of the remaining documents; None without an embedding model."""
    if cfg.embedding is None:
        return None
    return embed_documents(
        place, corpus.documents, screened=corpus.screened, embedding=cfg.embedding
    )


def cluster(cfg: Config, place: Place, corpus: Corpus, embeddings: Table | None) -> Table | None:
    """Cluster the remaining documents by a column or by meaning; None without clusters."""
    if cfg.clusters is None:
        return None
    if cfg.grouped_by is not None:
        return group_documents(place, corpus.documents, screened=corpus.screened, by=cfg.grouped_by)
    assert embeddings is not None, "the configuration was checked"
    memberships = cluster_documents(place, embeddings, settings=cfg.clusters)
    describe_clusters(place, corpus.documents, memberships)
    measure_clusters(place, embeddings, memberships, settings=cfg.clusters, label="clusters")
    return memberships


def combine(cfg: Config, place: Place, corpus: Corpus, memberships: Table | None) -> None:
    """Make the material for long contexts: parts of documents, sets of a cluster's documents, and
    sets with distractors."""
    settings = cfg.long_context
    if cfg.tokenizer is None:
        return
    count = functools.partial(count_tokens, model=cfg.tokenizer)
    made = list[Table]()
    if settings.segments is not None:
        segments = split_documents(
            place,
            corpus.documents,
            screened=corpus.screened,
            splitting=settings.segments,
            count=count,
            workers=cfg.workers,
        )
        made.append(segments)
    if settings.sets is not None and memberships is not None:
        lengths = count_document_tokens(
            place,
            corpus.documents,
            screened=corpus.screened,
            count=count,
            workers=cfg.workers,
        )
        sets = make_document_sets(place, memberships, lengths, settings=settings.sets)
        made += [lengths, sets]
        if settings.padding is not None:
            padded = pad_document_sets(
                place, sets, memberships, lengths, padding=settings.padding, label="padded"
            )
            made.append(padded)
    if made:
        measure_long_contexts(place, *made, label="long_contexts")
