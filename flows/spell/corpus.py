"""The dataset D of Algorithm 1: clusters of documents for every task type, from prepared corpora or the micro-world."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from flows.corpora import check_distinct, find_prepared, open_clusters
from flows.micro.tables import cluster_documents, cluster_memberships
from flows.run import Run
from flows.spell.config import Config
from tasks.clusters import choose_clusters, documents_of
from warehouse.store import Place, Table


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

    name: str
    documents: Table
    memberships: Table

    @classmethod
    def open(cls, place: Place, name: str) -> Source:
        """Raises ValueError saying what is missing."""
        return cls(name, find_prepared(place.store, name), open_clusters(place, name))


def open_corpus(run: Run[Config]) -> Corpus:
    """Choose the clusters of every type, and put their documents into the run.

    Types that share a corpus get clusters of their own, unless all clusters are wanted for all. Raises ValueError for
    two corpora that share a document.
    """
    cfg, place = run.cfg, run.place
    if cfg.corpus in cfg.worlds:
        made = {"seed": cfg.world_seed, "num_clusters": cfg.clusters.in_world}
        memberships = cluster_memberships(place, **made)
        return Corpus((cluster_documents(place, **made),), dict.fromkeys(cfg.task_types, memberships))
    finance = cfg.clusters.finance_corpus or cfg.corpus
    names = {t: finance if t == "finance_math" else cfg.corpus for t in cfg.task_types}
    sources = {name: Source.open(place, name) for name in dict.fromkeys(names.values())}
    check_distinct({name: source.memberships for name, source in sources.items()})
    chosen = choose(place, cfg, {t: sources[name] for t, name in names.items()})
    documents = [
        documents_of(place, source.documents, [chosen[t] for t in names if names[t] == name], label=f"of-{name}")
        for name, source in sources.items()
    ]
    return Corpus(tuple(documents), chosen)


def choose(place: Place, cfg: Config, sources: Mapping[str, Source]) -> dict[str, Table]:
    """The clusters of every task type; those of a second corpus are numbered on from the first."""
    count, chosen = cfg.clusters.per_type, {}
    first, taken, numbered = dict[str, int](), Counter[str](), 0
    for task_type, source in sources.items():
        if source.name not in first:
            first[source.name] = numbered
            numbered += 1 + int(source.memberships.arrow["cluster"].to_numpy().max())
        chosen[task_type] = choose_clusters(
            place,
            source.memberships,
            num_clusters=count,
            skip=taken[source.name],
            shift=first[source.name],
            seed=cfg.seed,
            label=task_type if count else f"of-{source.name}",
        )
        taken[source.name] += count or 0
    return chosen
