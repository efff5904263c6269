"""Prepared corpora: their clusters of documents, divided among the task types."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from flows.blocks.corpora import check_distinct, find_prepared, open_clusters
from tasks.clusters import choose_clusters, documents_of
from warehouse.store import Place, Table

log = logging.getLogger("selfplay")


@dataclass(frozen=True)
class ClusteredCorpus:
    """The documents of all clusters in use, and each task type's clusters."""

    documents: tuple[Table, ...]
    memberships: dict[str, Table]

    @property
    def clusters(self) -> tuple[Table, ...]:
        """The memberships, each table once."""
        return tuple({table.address: table for table in self.memberships.values()}.values())


def open_prepared(
    place: Place, corpus_of: Mapping[str, str], per_type: int | None, seed: int
) -> ClusteredCorpus:
    """Choose the clusters of every task type, and copy their documents into the run.

    `corpus_of` maps task types to prepared corpora. Task types that share a corpus get different
    clusters: `per_type` each, or equal shares if the corpus has too few. If `per_type` is None,
    each type gets all clusters. Raises ValueError for a corpus that is missing, has no clusters or
    has fewer clusters than task types, and for two corpora that share a document.
    """
    corpora = {name: find_prepared(place.store, name) for name in corpus_of.values()}
    clusters = {name: open_clusters(place, name) for name in corpora}
    check_distinct(clusters)
    memberships = _divide(place, corpus_of, clusters, per_type, seed)
    documents = []
    for name, corpus in corpora.items():
        used = [memberships[task_type] for task_type in corpus_of if corpus_of[task_type] == name]
        documents.append(documents_of(place, corpus, used, label=f"of-{name}"))
    return ClusteredCorpus(tuple(documents), memberships)


def _divide(
    place: Place,
    corpus_of: Mapping[str, str],
    clusters: dict[str, Table],
    per_type: int | None,
    seed: int,
) -> dict[str, Table]:
    """The clusters of each task type.

    The numbers of a second corpus's clusters continue those of the first: with 100 clusters in
    the first corpus, cluster 0 of the second becomes number 100.
    """
    counts = [1 + int(table.arrow["cluster"].to_numpy().max()) for table in clusters.values()]
    shift_of = dict(zip(clusters, accumulate(counts, initial=0), strict=False))
    num_of = {name: _num_per_type(corpus_of, name, clusters[name], per_type) for name in clusters}
    memberships = {}
    num_taken = Counter[str]()
    for task_type, name in corpus_of.items():
        # types that get all clusters of a corpus share one table
        label = task_type if per_type else f"of-{name}"
        memberships[task_type] = choose_clusters(
            place,
            clusters[name],
            num_clusters=num_of[name],
            skip=num_taken[name],
            shift=shift_of[name],
            seed=seed,
            label=label,
        )
        num_taken[name] += num_of[name] or 0
    return memberships


def _num_per_type(
    corpus_of: Mapping[str, str], name: str, clusters: Table, per_type: int | None
) -> int | None:
    """The number of a corpus's clusters that each of its task types gets; None for all."""
    if per_type is None:
        return None
    num_clusters = len(clusters.arrow["cluster"].unique())
    num_types = list(corpus_of.values()).count(name)
    if num_clusters >= num_types * per_type:
        return per_type
    if num_clusters < num_types:
        raise ValueError(
            f"corpus {name} has {num_clusters} clusters, and {num_types} task types share it: give"
            " more documents, or fewer task_types"
        )
    share = num_clusters // num_types
    log.warning(
        "corpus %s has %d clusters; clusters.per_type=%d assumes more: each task type gets %d",
        name,
        num_clusters,
        per_type,
        share,
    )
    return share
