"""The dataset D of Algorithm 1: clusters of documents for every task type, from prepared corpora or the micro-world."""

from __future__ import annotations

from dataclasses import dataclass

from flows.micro import clusters
from flows.spell.config import CorpusSettings, SpellConfig
from tasks.clusters import choose_clusters, documents_of
from tasks.stage import Rows, stage
from warehouse.corpus_schemas import MEMBERSHIPS
from warehouse.schemas import DOCUMENTS
from warehouse.store import Place, Store, Table

MICRO = "micro"


@dataclass(frozen=True)
class Corpus:
    """Documents of all clusters that are used, and the clusters of each task type."""

    documents: tuple[Table, ...]
    memberships: dict[str, Table]

    @property
    def clusters(self) -> tuple[Table, ...]:
        """The memberships, each table once."""
        return tuple({table.address: table for table in self.memberships.values()}.values())


def open_corpus(place: Place, cfg: SpellConfig) -> Corpus:
    """Choose the clusters of every type, and put their documents into the run.

    Types that share a corpus get clusters of their own, unless all clusters are wanted for all.
    """
    if cfg.corpus.run == MICRO:
        return _world(place, cfg)
    general = prepared(place.store, cfg.corpus.run)
    finance = prepared(place.store, cfg.corpus.finance_run) if cfg.corpus.finance_run else general
    shift = 1 + max(general[1].arrow["cluster"].to_pylist(), default=0)
    chosen, taken = {}, {general[1].address: 0, finance[1].address: 0}
    for task_type in cfg.task_types:
        source = (finance if task_type == "finance_math" else general)[1]
        count = cfg.corpus.clusters_per_type
        chosen[task_type] = choose_clusters(
            place,
            source,
            num_clusters=count,
            skip=taken[source.address],
            shift=shift if source is finance[1] and finance is not general else 0,
            seed=cfg.seed,
            label=task_type if count else source.address.split("/")[0],
        )
        taken[source.address] += count or 0
    corpus = Corpus((), chosen)
    sources = [general[0]] if finance is general else [general[0], finance[0]]
    return Corpus((documents_of(place, sources, corpus.clusters),), chosen)


def prepared(store: Store, run: str) -> tuple[Table, Table]:
    """Documents and memberships of a run of `prepare-corpus`. Raises ValueError saying what is missing."""
    found = []
    for kind in (DOCUMENTS.name, MEMBERSHIPS.name):
        tables = [table for table in store.tables(run) if table.schema.name == kind]
        plain = [table for table in tables if table.address == f"{run}/{kind}"] or tables[-1:]
        if not plain:
            raise ValueError(
                f"run {run!r} has no {kind}: give the name of a run of prepare-corpus that has clustered its documents"
            )
        found.append(plain[0])
    return found[0], found[1]


def _world(place: Place, cfg: SpellConfig) -> Corpus:
    settings: CorpusSettings = cfg.corpus
    documents = world_documents(place, seed=settings.world_seed, num_clusters=settings.world_clusters)
    memberships = world_memberships(place, seed=settings.world_seed, num_clusters=settings.world_clusters)
    return Corpus((documents,), dict.fromkeys(cfg.task_types, memberships))


@stage(DOCUMENTS)
def world_documents(*, seed: int, num_clusters: int) -> Rows:
    """Yield the documents of the micro-world's clusters."""
    for _, document in clusters.cluster_rows(seed, num_clusters):
        yield {**document, "source": f"micro-world of clusters, seed {seed}", "num_chars": len(document["text"])}


@stage(MEMBERSHIPS)
def world_memberships(*, seed: int, num_clusters: int) -> Rows:
    """Yield which document is in which cluster."""
    for number, document in clusters.cluster_rows(seed, num_clusters):
        yield {"document_id": document["document_id"], "cluster": number, "similarity": 1.0}
