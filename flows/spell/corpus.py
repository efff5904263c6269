"""The dataset D of Algorithm 1: clusters of documents for every task type, from prepared corpora or the micro-world."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from flows.corpora import check_distinct, find_prepared, open_clusters
from flows.micro.tables import cluster_documents, cluster_memberships
from flows.run import Run
from flows.spell.config import Config
from tasks.clusters import choose_clusters, documents_of
from warehouse.store import Table


@dataclass(frozen=True)
class Corpus:
    """Documents of all clusters that are used, and the clusters of each task type."""

    documents: tuple[Table, ...]
    memberships: dict[str, Table]

    @property
    def clusters(self) -> tuple[Table, ...]:
        """The memberships, each table once."""
        return tuple({table.address: table for table in self.memberships.values()}.values())


def open_corpus(run: Run[Config]) -> Corpus:
    """Choose the clusters of every type, and put their documents into the run.

    Types that share a corpus get clusters of their own, unless all clusters are wanted for all. Raises ValueError for
    a corpus that is missing or has no clusters, and for two corpora that share a document.
    """
    cfg, place = run.cfg, run.place
    if cfg.corpus in cfg.worlds:
        made = {"seed": cfg.world_seed, "num_clusters": cfg.clusters.in_world}
        memberships = cluster_memberships(place, **made)
        return Corpus((cluster_documents(place, **made),), dict.fromkeys(cfg.task_types, memberships))
    finance = cfg.clusters.finance_corpus or cfg.corpus
    name_of = {t: finance if t == "finance_math" else cfg.corpus for t in cfg.task_types}
    sources = {name: find_prepared(place.store, name) for name in name_of.values()}
    clusters = {name: open_clusters(place, name) for name in sources}
    check_distinct(clusters)
    chosen = choose(run, name_of, clusters)
    documents = [
        documents_of(place, source, [chosen[t] for t in name_of if name_of[t] == name], label=f"of-{name}")
        for name, source in sources.items()
    ]
    return Corpus(tuple(documents), chosen)


def choose(run: Run[Config], name_of: dict[str, str], clusters: dict[str, Table]) -> dict[str, Table]:
    """The clusters of every task type; those of a second corpus are numbered on from the first."""
    sizes = (1 + int(table.arrow["cluster"].to_numpy().max()) for table in clusters.values())
    shifts = dict(zip(clusters, accumulate(sizes, initial=0), strict=False))
    count, chosen, taken = run.cfg.clusters.per_type, {}, Counter[str]()
    for task_type, name in name_of.items():
        numbers = {"num_clusters": count, "skip": taken[name], "shift": shifts[name], "seed": run.cfg.seed}
        label = task_type if count else f"of-{name}"
        chosen[task_type] = choose_clusters(run.place, clusters[name], label=label, **numbers)
        taken[name] += count or 0
    return chosen
