"""Ranking by meaning: sentence-transformers vectors and their exact inner product."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

if TYPE_CHECKING:
    from corpus_prep.index import EmbeddingConfig

DOCUMENTS_AT_ONCE = 4_096
SCORES_AT_ONCE = 1 << 26  # 256 MiB of float32
CANDIDATES_PER_HIT = 4  # low-precision candidates scored again in float32
SAME_MODEL_COSINE = 0.99  # bfloat16 and another batch shape stay above it; another model does not


class Encoder:
    """Texts to normalised float32 vectors, on the CPU."""

    def __init__(self, config: "EmbeddingConfig"):
        self.config = config
        self.device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = getattr(torch, config.dtype)
        try:
            self._model = SentenceTransformer(
                config.model, revision=config.revision, device=self.device, model_kwargs={"dtype": self.dtype}
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"embedding model {config.model} (revision {config.revision}, device {self.device}) cannot be loaded: "
                f"{error}. Give a local folder or download it first; without an embedding model BM25 is used."
            ) from error

    def __call__(self, texts: list[str]) -> np.ndarray:
        vectors = self._model.encode(
            texts, batch_size=self.config.batch_size, convert_to_tensor=True, show_progress_bar=False
        )
        return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()

    def write_vectors(self, titles_and_texts: Iterable[tuple[str, str]], num_documents: int, folder: Path) -> None:
        """Write vectors.npy, [documents, dimensions], one row a document in order."""
        titles_and_texts = iter(titles_and_texts)
        dtype = np.float32 if self.config.dtype == "float32" else np.float16
        shape = num_documents, self(["."]).shape[1]
        vectors_DH = np.lib.format.open_memmap(folder / "vectors.npy", mode="w+", dtype=dtype, shape=shape)
        for start in range(0, num_documents, DOCUMENTS_AT_ONCE):
            texts = [self._passage(*document) for document in islice(titles_and_texts, DOCUMENTS_AT_ONCE)]
            vectors_DH[start : start + len(texts)] = self(texts)
        vectors_DH.flush()

    def open_vectors(self, folder: Path, first_document: tuple[str, str]) -> "EmbeddingRanker":
        """Raises ValueError if this model does not give the first document the vector stored for it."""
        ranker = EmbeddingRanker(folder, self)
        vector, stored = self([self._passage(*first_document)])[0], ranker.stored_DH[0].astype(np.float32)
        cosine = float(vector @ stored) if vector.shape == stored.shape else 0.0
        if cosine < SAME_MODEL_COSINE:
            raise ValueError(
                f"embedding model {self.config.model} is not the one that search index {folder} was built with: its "
                f"vector of the first document has cosine {cosine:.3f} with the stored one. Build the index again."
            )
        return ranker

    def _passage(self, title: str, text: str) -> str:
        return f"{self.config.document_prefix}{title}\n{text}"


class EmbeddingRanker:
    """Exact inner product: every document is scored, in the model's dtype, and the best again in float32."""

    def __init__(self, folder: Path, encoder: Encoder):
        self._encoder = encoder
        self.stored_DH = np.load(folder / "vectors.npy", mmap_mode="c")  # copy-on-write: torch wants it writable
        matrix = torch.from_numpy(self.stored_DH)
        self._matrix_DH = matrix.to(device=encoder.device, dtype=encoder.dtype)  # float32 on a CPU stays mapped

    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        asked = [index for index, query in enumerate(queries) if query.strip()]
        ranked: list[list[tuple[int, float]]] = [[] for _ in queries]
        if asked:
            query_QH = self._encoder([self._encoder.config.query_prefix + queries[index] for index in asked])
            for index, vector, rows in zip(asked, query_QH, self._candidates(query_QH, k), strict=True):
                rows = np.sort(rows)
                scores = (self.stored_DH[rows].astype(np.float32) * vector).sum(axis=1)
                best = np.argsort(-scores, kind="stable")[:k]
                ranked[index] = [(int(rows[i]), float(scores[i])) for i in best]
        return ranked

    def _candidates(self, query_QH: np.ndarray, k: int) -> np.ndarray:
        """Rows of the best CANDIDATES_PER_HIT * k documents of each query, merged over blocks of documents."""
        query = torch.from_numpy(query_QH).to(device=self._matrix_DH.device, dtype=self._matrix_DH.dtype)
        num_documents = len(self._matrix_DH)
        num_kept = min(CANDIDATES_PER_HIT * k, num_documents)
        block = max(num_kept, SCORES_AT_ONCE // len(query_QH))
        scores, rows = [], []
        for start in range(0, num_documents, block):
            score_QD = query @ self._matrix_DH[start : start + block].T
            top = score_QD.topk(min(num_kept, score_QD.shape[1]), dim=1)
            scores.append(top.values.float())
            rows.append(top.indices + start)
        best = torch.cat(scores, dim=1).topk(num_kept, dim=1).indices
        return torch.cat(rows, dim=1).gather(1, best).cpu().numpy()
