"""Novelty of a batch's tasks: clusters of similar tasks, and each cluster's share of the batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.read import NOT_SAMPLED
from tasks.stage import Rows, Tables, rows_of, stage
from warehouse.schemas import NOVELTIES

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MAX_ORDER = 4  # n-grams of one to four words, weighted equally
EPSILON = 0.1  # count for an order without matches: method 1 of Chen and Cherry (2014)
BLOCK = 256  # texts compared with all others at a time, to bound memory


def bleu(hypothesis_H: Sequence[str], reference_R: Sequence[str]) -> np.ndarray:
    """Sentence BLEU-4 of every pair, [H, R], over words split at whitespace, with one reference and
    smoothing method 1.

    It equals NLTK's `sentence_bleu`, except that identical texts score 1 even with fewer than four
    words. It is not symmetric: n-grams are counted in the hypothesis, and only a short hypothesis
    is penalised.

    >>> bleu(["a b c d", "a b", "x"], ["a b c d e", "a b"]).round(3).tolist()
    [[0.779, 0.17], [0.071, 1.0], [0.0, 0.0]]
    """
    hypotheses = [text.split() for text in hypothesis_H]
    references = [text.split() for text in reference_R]
    orders = [_incidences(hypotheses, references, n) for n in range(1, MAX_ORDER + 1)]
    length_H = np.array([len(words) for words in hypotheses], float)
    length_R = np.array([len(words) for words in references], float)
    number: dict[tuple[str, ...], int] = {}  # equal texts have one number
    number_H = np.array([number.setdefault(tuple(words), len(number)) for words in hypotheses])
    number_R = np.array([number.setdefault(tuple(words), len(number)) for words in references])
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
        similarity[block] = np.where(number_H[block, None] == number_R, 1.0, np.exp(log_score))
    return similarity


def _incidences(
    hypotheses: list[list[str]], references: list[list[str]], n: int
) -> tuple[csr_array, csr_array]:
    """Which n-grams each text has, [texts, n-grams]. A repeated n-gram has one column per
    occurrence, so the product of two rows counts matches clipped to the smaller count."""
    from scipy.sparse import csr_array

    column: dict[tuple[tuple[str, ...], int], int] = {}
    matrices = []
    for texts in (hypotheses, references):
        indices = list[int]()
        ends = [0]
        for words in texts:
            seen: Counter[tuple[str, ...]] = Counter()
            for gram in zip(*(words[i:] for i in range(n)), strict=False):
                seen[gram] += 1
                indices.append(column.setdefault((gram, seen[gram]), len(column)))
            ends.append(len(indices))
        matrices.append((np.ones(len(indices)), indices, ends))
    of_hypotheses = csr_array(matrices[0], shape=(len(hypotheses), len(column)))
    of_references = csr_array(matrices[1], shape=(len(references), len(column)))
    return of_hypotheses, of_references


def clusters_of(similarity_NN: np.ndarray, distance: float = 0.5) -> list[int]:
    """The cluster of each of N texts, numbered in the order of their first members.

    Clustering is agglomerative, with average linkage of 1 - similarity; clusters are merged while
    they are less than `distance` apart. The earlier of two texts is the hypothesis, the row of
    `similarity_NN`, as in the code released for R-Zero (arXiv 2508.05004).

    >>> texts = ["what is 2 + 3 ?", "name a river in France", "what is 2 + 4 ?"]
    >>> clusters_of(bleu(texts, texts))
    [0, 1, 0]
    """
    # imported here, because it takes half a second that other commands need not wait
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    num_texts = len(similarity_NN)
    if num_texts < 2:
        return [0] * num_texts
    apart = np.triu(np.maximum(1 - similarity_NN, 0.0), 1)
    tree = linkage(squareform(apart + apart.T), "average")
    # `fcluster` also merges at exactly its threshold
    labels = fcluster(tree, np.nextafter(distance, 0), "distance")
    number: dict[int, int] = {}
    return [number.setdefault(label, len(number)) for label in labels.tolist()]


@stage(NOVELTIES)
def novelty(*, tasks: Tables, distance: float = 0.5) -> Rows:
    """Yield one row per task: its cluster among all tasks (see `clusters_of`).

    A task without text is in no cluster, but counts toward the batch size unless the engine failed.
    """
    rows = rows_of(tasks)
    text_of = {row["task_id"]: row["text"] for row in rows if row["text"] is not None}
    texts = list(text_of.values())
    clusters = clusters_of(bleu(texts, texts), distance)
    cluster_of = dict(zip(text_of, clusters, strict=True))
    sizes = Counter(clusters)
    batch_size = sum(row["text"] is not None or row["malformed"] not in NOT_SAMPLED for row in rows)
    for row in rows:
        cluster = cluster_of.get(row["task_id"])
        yield {
            "task_id": row["task_id"],
            "cluster": cluster,
            "cluster_size": None if cluster is None else sizes[cluster],
            "batch_size": batch_size,
            "share": None if cluster is None else sizes[cluster] / batch_size,
            # the batch is not compared with earlier ones
            "nearest": None,
            "similarity": None,
        }
