"""Ranking by words: BM25 from bm25s' scores, for where there is no embedding model."""

import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np

K1, B = 1.5, 0.75  # bm25s' defaults; k1 caps a word's repetition, b discounts long documents
METHOD = "lucene"  # its idf ln(1 + (D - df + 0.5) / (df + 0.5)) is positive, so a score of 0 means no shared word
TITLE_REPEATS = 2
BM25_SETTINGS = {"k1": K1, "b": B, "method": METHOD, "title_repeats": TITLE_REPEATS, "tokens": r"NFC, lower case, \w+"}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", unicodedata.normalize("NFC", text).lower())


def write_bm25(titles_and_texts: Iterable[tuple[str, str]], folder: Path) -> None:
    """Write bm25_*.npy (word scores by word, as compressed columns) and the vocabulary.

    Raises:
        ValueError: no document holds a word.
    """
    import bm25s  # brings numba: 2.6 CPU-s, which searching need not pay

    vocabulary: dict[str, int] = {}
    ids_D: list[list[int]] = []
    for title, text in titles_and_texts:
        words = _words(title) * TITLE_REPEATS + _words(text)
        ids_D.append([vocabulary.setdefault(word, len(vocabulary)) for word in words])
    if not vocabulary:
        raise ValueError("no document to index holds a word (letters, digits). Look at the corpus.")
    bm25 = bm25s.BM25(k1=K1, b=B, method=METHOD)
    bm25.index((ids_D, vocabulary), create_empty_token=False, show_progress=False)
    for name in ("data", "indices", "indptr"):
        np.save(folder / f"bm25_{name}.npy", bm25.scores[name])
    (folder / "bm25_vocabulary.json").write_text(json.dumps(vocabulary))


class Bm25Ranker:
    """Sums the word scores that bm25s computed (Lu 2024, arXiv:2407.03618; Lucene's idf, always positive).

    bm25s' own search is not used: it fills up to k with documents that share no word with the query, and leaves the
    order of ties open.
    """

    def __init__(self, folder: Path, num_documents: int):
        self._scores, self._rows, self._starts = (
            np.asarray(np.load(folder / f"bm25_{name}.npy", mmap_mode="r")) for name in ("data", "indices", "indptr")
        )
        self._vocabulary: dict[str, int] = json.loads((folder / "bm25_vocabulary.json").read_bytes())
        self._num_documents = num_documents

    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        return [self._rank_one(query, k) for query in queries]

    def _rank_one(self, query: str, k: int) -> list[tuple[int, float]]:
        # Sorted, so that the order of a query's words cannot change a rounding and with it a tie.
        word_ids = sorted(self._vocabulary[word] for word in _words(query) if word in self._vocabulary)
        if not word_ids:
            return []
        score_D = np.zeros(self._num_documents, dtype=np.float32)
        for word_id in word_ids:
            postings = slice(self._starts[word_id], self._starts[word_id + 1])
            np.add.at(score_D, self._rows[postings], self._scores[postings])  # 2.3 x faster than score_D[rows] += ...
        kth_best = np.partition(score_D, -k)[-k] if k < self._num_documents else 0.0
        rows = np.flatnonzero(score_D >= kth_best if kth_best > 0 else score_D)
        best = rows[np.argsort(-score_D[rows], kind="stable")[:k]]
        return [(int(row), float(score_D[row])) for row in best]
