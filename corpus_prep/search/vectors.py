"""Rank by meaning.

Candidates come from an exact product or a faiss index and are scored again in float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from corpus_prep.search.settings import PQ_CODES

if TYPE_CHECKING:
    from corpus_prep.search.encoder import Encoder
    from corpus_prep.search.settings import VectorSearch

VECTORS = "vectors.npy"
IVF = "ivf.faiss"
LISTS = "ivf.lists"
SCORES_AT_ONCE = 1 << 26  # 256 MiB of float32
ROWS_AT_ONCE = 1 << 20  # rows of a faiss index in memory before it is written to disk
TRAINING_ROWS = 64  # per list
SAME_MODEL_COSINE = 0.99  # bfloat16 and other batch shapes stay above it; other models do not


def write_search(vectors: Path, search: VectorSearch, folder: Path) -> VectorSearch:
    """Write to `folder` what the search needs besides the array in the file `vectors`; nothing for
    an exact search. Returns the resolved settings."""
    vector_DH = np.load(vectors, mmap_mode="r")
    search = search.resolved(vector_DH)
    if search.kind != "exact":
        _write_ivf(vector_DH, search, folder)
    return search


class VectorRanker:
    """Ranks by cosine in float32, among the best `candidates` * k of the search.

    Threads may share it.
    """

    def __init__(self, folder: Path, encoder: Encoder, search: VectorSearch):
        self._encoder = encoder
        self._search = search
        # copy-on-write: torch wants it writable
        self._stored_DH = np.load(folder / VECTORS, mmap_mode="c")
        self._nearest: Nearest
        if search.kind == "exact":
            self._nearest = Exact(self._stored_DH, encoder)
        else:
            self._nearest = Ivf(folder, search)

    def check(self, title: str, text: str) -> None:
        """Raise ValueError if the model is not the one that made the stored vectors.

        Its vector of the first document must be close to the stored one.
        """
        vector = self._encoder.documents([(title, text)])[0]
        stored = self._stored_DH[0].astype(np.float32)
        cosine = 0.0
        if vector.shape == stored.shape:
            cosine = float(vector.astype(np.float32) @ stored)
        if cosine < SAME_MODEL_COSINE:
            raise ValueError(
                f"embedding model {self._encoder.config.model} is not the one that the search index"
                f" was built with: its vector of the first document has cosine {cosine:.3f} with"
                " the stored one. Build the index again."
            )

    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        """As `Ranker.rank`, with cosines as scores. An empty query gets []."""
        nonempty = [index for index, query in enumerate(queries) if query.strip()]
        ranked: list[list[tuple[int, float]]] = [[] for _ in queries]
        if nonempty:
            query_QH = self._encoder.queries([queries[index] for index in nonempty])
            for index, ranking in zip(nonempty, self.rank_vectors(query_QH, k), strict=True):
                ranked[index] = ranking
        return ranked

    def rank_vectors(self, query_QH: np.ndarray, k: int) -> list[list[tuple[int, float]]]:
        """As `rank`, for queries given as vectors: float32, of length 1, [queries, dimensions]."""
        num = min((self._search.candidates or 1) * k, len(self._stored_DH))
        ranked = []
        for vector, rows in zip(query_QH, self._nearest(query_QH, num), strict=True):
            rows = np.sort(rows[rows >= 0])
            scores = (self._stored_DH[rows].astype(np.float32) * vector).sum(axis=1)
            best = np.argsort(-scores, kind="stable")[:k]
            ranked.append([(int(rows[i]), float(scores[i])) for i in best])
        return ranked


class Nearest(Protocol):
    """A search for the stored vectors nearest to queries, exact or approximate."""

    def __call__(self, query_QH: np.ndarray, num: int) -> np.ndarray:
        """Rows of approximately the `num` best documents for each query, [queries, num].

        A row is -1 if there are fewer.
        """
        ...


class Exact:
    """Every document is scored, in the model's dtype, on its device."""

    def __init__(self, stored_DH: np.ndarray, encoder: Encoder):
        matrix = torch.from_numpy(stored_DH)
        # float32 on a CPU stays mapped
        self._matrix_DH = matrix.to(device=encoder.device, dtype=encoder.dtype)

    def __call__(self, query_QH: np.ndarray, num: int) -> np.ndarray:
        query = torch.from_numpy(query_QH).to(
            device=self._matrix_DH.device, dtype=self._matrix_DH.dtype
        )
        block = max(num, SCORES_AT_ONCE // len(query_QH))
        scores = []
        rows = []
        for start in range(0, len(self._matrix_DH), block):
            score_QD = query @ self._matrix_DH[start : start + block].T
            top = score_QD.topk(min(num, score_QD.shape[1]), dim=1)
            scores.append(top.values.float())
            rows.append(top.indices + start)
        best = torch.cat(scores, dim=1).topk(num, dim=1).indices
        return torch.cat(rows, dim=1).gather(1, best).cpu().numpy()


class Ivf:
    """A faiss inverted file, its lists mapped from disk."""

    def __init__(self, folder: Path, search: VectorSearch):
        import faiss

        # merged lists are mapped anyway; IO_FLAG_MMAP would lose them
        merged = (folder / LISTS).exists()
        where = faiss.IO_FLAG_ONDISK_SAME_DIR if merged else faiss.IO_FLAG_MMAP
        flags = faiss.IO_FLAG_READ_ONLY | where
        self._index: Any = faiss.read_index(str(folder / IVF), flags)
        self._probes = search.probes

    def __call__(self, query_QH: np.ndarray, num: int) -> np.ndarray:
        import faiss

        parameters = faiss.SearchParametersIVF()
        parameters.nprobe = self._probes
        return self._index.search(query_QH, num, params=parameters)[1]


def _write_ivf(vector_DH: np.ndarray, search: VectorSearch, folder: Path) -> None:
    """Train on a sample, add vectors block by block, and merge the blocks on disk.

    Memory holds one block.
    """
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    num, dimensions = vector_DH.shape
    # np: no polysemous codes, which take minutes and are not used
    codes = "SQ8" if search.kind == "ivf_sq8" else f"PQ{search.pq_bytes}np"
    index: Any = faiss.index_factory(
        dimensions, f"IVF{search.lists},{codes}", faiss.METRIC_INNER_PRODUCT
    )
    for means in (index.cp, index.pq.cp) if search.kind == "ivf_pq" else (index.cp,):
        means.seed = search.seed
        means.min_points_per_centroid = 1
        means.niter = 10
    num_training = max(TRAINING_ROWS * (search.lists or 1), PQ_CODES)
    chosen = np.random.default_rng(search.seed).permutation(num)[:num_training]
    index.train(np.ascontiguousarray(vector_DH[np.sort(chosen)], np.float32))
    blocks = []
    for start in range(0, num, ROWS_AT_ONCE):
        block = faiss.clone_index(index)
        rows = np.ascontiguousarray(vector_DH[start : start + ROWS_AT_ONCE], np.float32)
        block.add_with_ids(rows, np.arange(start, start + len(rows)))
        blocks.append(folder / f"block-{start}.faiss")
        faiss.write_index(block, str(blocks[-1]))
    if len(blocks) == 1:
        blocks[0].rename(folder / IVF)
        return
    merge_ondisk(index, [str(block) for block in blocks], str(folder / LISTS))
    faiss.write_index(index, str(folder / IVF))
    for block in blocks:
        block.unlink()
