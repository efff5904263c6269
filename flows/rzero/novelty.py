"""Novelty of a batch's tasks: clusters of similar tasks, and the most similar earlier task of
each."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.read import NOT_SAMPLED
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import NOVELTIES, Row
from warehouse.store import Table

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from corpus_prep.search.index import EmbeddingConfig

# texts H and R -> [H, R], 1 for equal texts
Similarity = Callable[[Sequence[str], Sequence[str]], np.ndarray]
MAX_ORDER = 4  # n-grams of one to four words, weighted equally
EPSILON = 0.1  # count for an order without matches: method 1 of Chen and Cherry (2014)
BLOCK = 256  # texts compared with all others at a time, which bounds the memory


def bleu(hypothesis_H: Sequence[str], reference_R: Sequence[str]) -> np.ndarray:
    """Sentence BLEU-4 of every pair, [H, R], over words split at blanks, with one reference and
    smoothing method 1.

    It equals NLTK's `sentence_bleu`, except that identical texts score 1 even with fewer than four
    words. It is not symmetric: n-grams are counted in the hypothesis, and only a short hypothesis
    is penalised.

    >>> bleu(["a b c d", "a b", "x"], ["a b c d e", "a b"]).round(3).tolist()
    [[0.779, 0.17], [0.071, 1.0], [0.0, 0.0]]
    """
    hypotheses, references = (
        [text.split() for text in texts] for texts in (hypothesis_H, reference_R)
    )
    orders = [_incidences(hypotheses, references, n) for n in range(1, MAX_ORDER + 1)]
    length_H, length_R = (
        np.array([len(words) for words in texts], float) for texts in (hypotheses, references)
    )
    number: dict[tuple[str, ...], int] = defaultdict(itertools.count().__next__)
    same_H, same_R = (
        np.array([number[tuple(words)] for words in texts]) for texts in (hypotheses, references)
    )
    similarity = np.zeros((len(hypotheses), len(references)))
    for start in range(0, len(hypotheses), BLOCK):
        block = slice(start, start + BLOCK)
        lengths = length_H[block, None]
        log_score = np.minimum(0.0, 1 - length_R / np.maximum(lengths, 1))  # brevity penalty
        for n, (of_hypotheses, of_references) in enumerate(orders, start=1):
            matches = (of_hypotheses[block] @ of_references.T).toarray()
            log_score += (
                np.log(np.where(matches == 0, EPSILON, matches) / np.maximum(lengths - n + 1, 1))
                / MAX_ORDER
            )
            if n == 1:
                log_score[matches == 0] = -np.inf
        similarity[block] = np.where(same_H[block, None] == same_R, 1.0, np.exp(log_score))
    return similarity


def _incidences(
    hypotheses: list[list[str]], references: list[list[str]], n: int
) -> tuple[csr_array, csr_array]:
    """Which n-grams each text has, [texts, n-grams]. A repeated n-gram has one column per
    occurrence, so that the product of two rows counts matches clipped to the smaller count."""
    from scipy.sparse import csr_array

    columns: dict[tuple[tuple[str, ...], int], int] = defaultdict(itertools.count().__next__)
    matrices = []
    for texts in (hypotheses, references):
        indices = list[int]()
        ends = [0]
        for words in texts:
            seen: Counter[tuple[str, ...]] = Counter()
            for gram in zip(*(words[i:] for i in range(n)), strict=False):
                seen[gram] += 1
                indices.append(columns[gram, seen[gram]])
            ends.append(len(indices))
        matrices.append((np.ones(len(indices)), indices, ends))
    of_hypotheses, of_references = (
        csr_array(csr, shape=(len(csr[2]) - 1, len(columns))) for csr in matrices
    )
    return of_hypotheses, of_references


def cosine(
    text_H: Sequence[str], text_R: Sequence[str], *, embedding: EmbeddingConfig
) -> np.ndarray:
    """Cosine of the texts' embeddings, [H, R]."""
    from corpus_prep.search.encoder import Encoder

    encode = Encoder(embedding).queries
    embedded_H = encode(text_H)
    return embedded_H @ (embedded_H if text_R is text_H else encode(text_R)).T


def clusters_of(
    text_N: Sequence[str], similarity: Similarity = bleu, distance: float = 0.5
) -> list[int]:
    """The cluster of each text, numbered in the order of their first members.

    Agglomerative with average linkage of 1 - similarity; clusters are merged while they are less
    than `distance` apart. Of two texts the earlier is the hypothesis, as in the code released for
    R-Zero (arXiv 2508.05004).

    >>> clusters_of(["what is 2 + 3 ?", "name a river in France", "what is 2 + 4 ?"])
    [0, 1, 0]
    """
    # half a second, which a command need not wait for
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(text_N) < 2:
        return [0] * len(text_N)
    apart = np.triu(np.maximum(1 - similarity(text_N, text_N), 0.0), 1)
    tree = linkage(squareform(apart + apart.T), "average")
    # which merges up to and at its threshold
    labels = fcluster(tree, np.nextafter(distance, 0), "distance")
    number: dict[int, int] = defaultdict(itertools.count().__next__)
    return [number[label] for label in labels.tolist()]


@stage(NOVELTIES)
def novelty(
    *, tasks: Tables, earlier: Tables = (), similarity: Similarity = bleu, distance: float = 0.5
) -> Rows:
    """Yield one row per task: its cluster among all tasks (see `clusters_of`), and the most similar
    task of the `earlier` tables (tasks, pools).

    `similarity` is `bleu` or a `partial(cosine, embedding=...)`. A task without text is in no
    cluster; it counts in the batch size unless the engine failed.
    """
    rows = rows_of(tasks)
    text_of = {row["task_id"]: row["text"] for row in rows if row["text"] is not None}
    clusters = clusters_of(list(text_of.values()), similarity, distance)
    cluster_of = dict(zip(text_of, clusters, strict=True))
    sizes = Counter(clusters)
    nearest = _nearest(text_of, [earlier] if isinstance(earlier, Table) else earlier, similarity)
    batch_size = sum(row["text"] is not None or row["malformed"] not in NOT_SAMPLED for row in rows)
    for row in rows:
        cluster = cluster_of.get(row["task_id"])
        yield {
            "task_id": row["task_id"],
            "cluster": cluster,
            "cluster_size": None if cluster is None else sizes[cluster],
            "batch_size": batch_size,
            "share": None if cluster is None else sizes[cluster] / batch_size,
            **nearest.get(row["task_id"], {"nearest": None, "similarity": None}),
        }


def _nearest(
    text_of: dict[str, str], earlier: Sequence[Table], similarity: Similarity
) -> dict[str, Row]:
    """The most similar earlier task of each task, the first of equally similar ones; never the
    task itself."""
    best: dict[str, Row] = {}
    for table in earlier if text_of else ():
        known = [
            row for row in table.rows() if row["text"] is not None and row["task_id"] not in text_of
        ]
        if known:
            similarities = similarity(list(text_of.values()), [row["text"] for row in known])
            for task_id, at, value in zip(
                text_of, similarities.argmax(1), similarities.max(1), strict=True
            ):
                if task_id not in best or value > best[task_id]["similarity"]:
                    best[task_id] = {"nearest": known[at]["task_id"], "similarity": float(value)}
    return best
