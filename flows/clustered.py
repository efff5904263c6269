"""Prepared corpora: their clusters of documents, divided among the task types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from flows.corpora import check_distinct, find_prepared, open_clusters
from tasks.clusters import choose_clusters, documents_of
from warehouse.store import Place, Table


@dataclass(frozen=True)
class Clustered:
    """The documents of all clusters in use, and the clusters of each task type."""

    documents: tuple[Table, ...]
    memberships: dict[str, Table]

    @property
    def clusters(self) -> tuple[Table, ...]:
        """The memberships, each table once."""
        return tuple({table.address: table for table in self.memberships.values()}.values())


def open_clustered(place: Place, corpus_of: Mapping[str, str], per_type: int | None, seed: int) -> Clustered:
    """Choose the clusters of every task type from its corpus, and copy their documents into the run.

    Types that share a corpus get different clusters, unless `per_type` is None: then each type gets all of them.
    Raises ValueError for a corpus that is missing or has no clusters, and for two corpora that share a document.
    """
    sources = {name: find_prepared(place.store, name) for name in corpus_of.values()}
    clusters = {name: open_clusters(place, name) for name in sources}
    check_distinct(clusters)
    chosen = _choose(place, corpus_of, clusters, per_type, seed)
    documents = [
        documents_of(place, source, [chosen[t] for t in corpus_of if corpus_of[t] == name], label=f"of-{name}")
        for name, source in sources.items()
    ]
    return Clustered(tuple(documents), chosen)


def _choose(
    place: Place, corpus_of: Mapping[str, str], clusters: dict[str, Table], per_type: int | None, seed: int
) -> dict[str, Table]:
    """The clusters of every task type. Numbers of a second corpus's clusters continue those of the first."""
    sizes = (1 + int(table.arrow["cluster"].to_numpy().max()) for table in clusters.values())
    shifts = dict(zip(clusters, accumulate(sizes, initial=0), strict=False))
    chosen, taken = {}, Counter[str]()
    for task_type, name in corpus_of.items():
        numbers = {"num_clusters": per_type, "skip": taken[name], "shift": shifts[name], "seed": seed}
        label = task_type if per_type else f"of-{name}"
        chosen[task_type] = choose_clusters(place, clusters[name], label=label, **numbers)
        taken[name] += per_type or 0
    return chosen
