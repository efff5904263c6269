"""The dataset D of Algorithm 1: clusters of documents for every task type, from prepared corpora or the micro-world."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flows.micro.worlds import clusters
from flows.prepared import open_clusters, prepared_corpus
from flows.spell.config import CorpusSettings, SpellConfig
from tasks.clusters import choose_clusters, documents_of
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS
from warehouse.schemas.corpus import MEMBERSHIPS
from warehouse.store import Place, Table

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


@dataclass(frozen=True)
class Source:
    """A prepared corpus: its documents, and which of them belong together."""

    run: str
    documents: Table
    memberships: Table

    @classmethod
    def open(cls, place: Place, run: str) -> Source:
        """Raises ValueError saying what is missing."""
        return cls(run, prepared_corpus(place.store, run), open_clusters(place, run))


def open_corpus(place: Place, cfg: SpellConfig) -> Corpus:
    """Choose the clusters of every type, and put their documents into the run.

    Types that share a corpus get clusters of their own, unless all clusters are wanted for all.
    """
    if cfg.corpus.run == MICRO:
        return _world(place, cfg)
    finance = cfg.corpus.finance_run or cfg.corpus.run
    runs = {t: finance if t == "finance_math" else cfg.corpus.run for t in cfg.task_types}
    sources = {run: Source.open(place, run) for run in dict.fromkeys(runs.values())}
    check_distinct(sources)
    chosen = choose(place, cfg, {t: sources[run] for t, run in runs.items()})
    documents = [
        documents_of(place, source.documents, [chosen[t] for t in runs if runs[t] == run], label=f"of-{run}")
        for run, source in sources.items()
    ]
    return Corpus(tuple(documents), chosen)


def choose(place: Place, cfg: SpellConfig, sources: Mapping[str, Source]) -> dict[str, Table]:
    """The clusters of every task type; those of a second corpus are numbered on from the first."""
    count, chosen = cfg.corpus.clusters_per_type, {}
    first, taken, numbered = dict[str, int](), Counter[str](), 0
    for task_type, source in sources.items():
        if source.run not in first:
            first[source.run] = numbered
            numbered += 1 + int(source.memberships.arrow["cluster"].to_numpy().max())
        chosen[task_type] = choose_clusters(
            place,
            source.memberships,
            num_clusters=count,
            skip=taken[source.run],
            shift=first[source.run],
            seed=cfg.seed,
            label=task_type if count else f"of-{source.run}",
        )
        taken[source.run] += count or 0
    return chosen


def check_distinct(sources: dict[str, Source]) -> None:
    """Raises ValueError for two corpora that use one id, for different documents or for the same one."""
    for one, other in itertools.combinations(sources.values(), 2):
        ids, others = (set(source.memberships.arrow["document_id"].to_pylist()) for source in (one, other))
        if shared := sorted(ids & others):
            raise ValueError(
                f"corpora {one.run} and {other.run} share {len(shared)} document ids, such as {shared[0]}: prepare one "
                "of them again with ids made of its files' names (--set 'columns.id=[]'), or both as one corpus"
            )


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
