"""Cluster vectors into clusters of bounded size.

K-means runs on two levels; then clusters are split and dissolved until all fit.

A first k-means makes about sqrt(K) cells, a second one makes clusters within each cell: N * sqrt(K)
comparisons per round instead of N * K. A cluster above the largest size is split by k-means again.
One below the smallest is dissolved: its members move to the nearest clusters with room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

ROWS_AT_ONCE = 65_536


class Clustering(BaseModel):
    """How documents are clustered. The same seed and number of threads give the same clusters.

    SPELL makes 50,000 clusters, of about 20 documents, of a million.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    by: Literal["meaning", "source", "title"] = Field(
        default="meaning",
        description=(
            "what the documents of a cluster share; source and title, such as the report"
            " that paragraphs come from, need no vectors and ignore the bounds"
        ),
    )
    size: PositiveInt = Field(
        default=20,
        description=(
            "approximate number of documents in a cluster: dissolving raises the mean slightly"
        ),
    )
    smallest: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="minimum size of a cluster, in multiples of `size`; smaller ones are dissolved",
    )
    largest: float = Field(
        default=2.0,
        ge=1,
        description="maximum size of a cluster, in multiples of `size`; larger ones are split",
    )
    iterations: PositiveInt = Field(default=10, description="iterations of k-means")
    sample: PositiveInt = Field(
        default=256, description="training documents per cell of the first k-means"
    )
    seed: int = Field(default=0, description="seed of k-means")
    threads: PositiveInt = Field(
        default=1, description="threads of k-means; another number may give other clusters"
    )

    @property
    def bounds(self) -> tuple[int, int]:
        """The fewest and the most documents in a cluster."""
        return max(1, int(np.ceil(self.smallest * self.size))), int(self.largest * self.size)


@dataclass(frozen=True)
class Clusters:
    """For each document, its cluster and its cosine to the cluster's centre; each cluster's cell.

    Clusters of one cell are neighbours.
    """

    cluster: np.ndarray
    similarity: np.ndarray
    cell: np.ndarray


def cluster(vector_DH: np.ndarray, settings: Clustering) -> Clusters:
    """Cluster vectors of length 1, [documents, dimensions], which may be mapped from a file.

    Raises:
        ValueError: there is no vector.
    """
    import faiss

    if not len(vector_DH):
        raise ValueError("there is no document to cluster.")
    faiss.omp_set_num_threads(settings.threads)
    cell_D = _cells(vector_DH, settings)
    cluster_D = np.empty(len(vector_DH), np.int32)
    similarity_D = np.empty(len(vector_DH), np.float32)
    cells: list[np.ndarray] = []
    num_clusters = 0
    for cell in np.unique(cell_D):
        member_D = np.flatnonzero(cell_D == cell)
        vectors = np.ascontiguousarray(vector_DH[member_D], np.float32)
        own = _within_bounds(vectors, settings)
        centre_KH = _means(vectors, own)
        cluster_D[member_D] = own + num_clusters
        similarity_D[member_D] = np.einsum("dh,dh->d", vectors, centre_KH[own])
        cells.append(np.full(len(centre_KH), len(cells), np.int32))
        num_clusters += len(centre_KH)
    return Clusters(cluster_D, similarity_D, np.concatenate(cells))


def _cells(vector_DH: np.ndarray, settings: Clustering) -> np.ndarray:
    """The first-level cell of each document. A cell too small for a cluster is dissolved."""
    num_cells = max(1, round((len(vector_DH) / settings.size) ** 0.5))
    chosen = np.random.default_rng(settings.seed).permutation(len(vector_DH))[
        : settings.sample * num_cells
    ]
    centre_KH = _k_means(
        np.ascontiguousarray(vector_DH[np.sort(chosen)], np.float32), num_cells, settings
    )
    cell_D = _nearest(vector_DH, centre_KH)
    size_K = np.bincount(cell_D, minlength=len(centre_KH))
    kept_K = size_K >= min(settings.bounds[0], size_K.max())
    if not kept_K.all():
        lost_D = np.flatnonzero(~kept_K[cell_D])
        cell_D[lost_D] = np.flatnonzero(kept_K)[_nearest(vector_DH[lost_D], centre_KH[kept_K])]
    return cell_D


def _within_bounds(vectors: np.ndarray, settings: Clustering) -> np.ndarray:
    """The clusters of one cell's documents, numbered from 0 without gaps."""
    groups = _split(np.arange(len(vectors)), vectors, settings)
    own = np.empty(len(vectors), np.int64)
    for number, members in enumerate(groups):
        own[members] = number
    _dissolve(vectors, own, settings)
    return np.unique(own, return_inverse=True)[1]


def _split(members: np.ndarray, vectors: np.ndarray, settings: Clustering) -> list[np.ndarray]:
    """Split members into groups of at most the largest size.

    Prefers two groups within bounds to one twice as large.
    """
    smallest, largest = settings.bounds
    num_groups = max(round(len(members) / settings.size), -(-len(members) // largest))
    if num_groups < 2:
        return [members]
    own = _nearest(vectors[members], _k_means(vectors[members], num_groups, settings))
    groups = [members[own == number] for number in np.unique(own)]
    if len(members) <= largest and min(map(len, groups)) < smallest:
        return [members]
    if len(groups) == 1:  # all equal: k-means cannot split them
        return np.array_split(members, num_groups)
    return [part for group in groups for part in _split(group, vectors, settings)]


def _dissolve(vectors: np.ndarray, own: np.ndarray, settings: Clustering) -> None:
    """Move the members of groups that are too small to the nearest groups with room, in place.

    The smallest groups come first.
    """
    smallest, largest = settings.bounds
    size_K = np.bincount(own)
    centre_KH = _means(vectors, own)
    for number in np.argsort(size_K, kind="stable"):
        room_K = np.where(size_K > 0, largest - size_K, 0)
        room_K[number] = 0
        if size_K[number] >= smallest or room_K.sum() < size_K[number]:
            continue
        members = np.flatnonzero(own == number)
        for member, likeness_K in zip(members, vectors[members] @ centre_KH.T, strict=True):
            nearest = int(np.argmax(np.where(room_K > 0, likeness_K, -np.inf)))
            own[member] = nearest
            room_K[nearest] -= 1
            size_K[nearest] += 1
        size_K[number] = 0


def _means(vectors: np.ndarray, own: np.ndarray) -> np.ndarray:
    """The mean direction of each group."""
    order = np.argsort(own, kind="stable")
    starts = np.searchsorted(own[order], np.arange(own.max() + 1))
    total_KH = np.add.reduceat(vectors[order], starts, axis=0)
    return total_KH / np.maximum(np.linalg.norm(total_KH, axis=1, keepdims=True), 1e-12)


def _k_means(vectors: np.ndarray, k: int, settings: Clustering) -> np.ndarray:
    import faiss

    means: Any = faiss.Kmeans(
        vectors.shape[1],
        min(k, len(vectors)),
        min_points_per_centroid=1,
        max_points_per_centroid=settings.sample,
        niter=settings.iterations,
        seed=settings.seed,
        spherical=True,
    )
    means.train(vectors)
    return means.centroids


def _nearest(vector_DH: np.ndarray, centre_KH: np.ndarray) -> np.ndarray:
    """For each vector, the centre with the greatest inner product."""
    neighbours = [
        (
            np.ascontiguousarray(vector_DH[start : start + ROWS_AT_ONCE], np.float32) @ centre_KH.T
        ).argmax(axis=1)
        for start in range(0, len(vector_DH), ROWS_AT_ONCE)
    ]
    if not neighbours:
        return np.empty(0, np.int64)
    return np.concatenate(neighbours)
