"""Rank by words: BM25, used without an embedding model."""

import json
import re
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from corpus_prep.scripts import UNSPACED_CLASS
from corpus_prep.search.postings import Inverter

# bm25s' defaults; k1 caps a word's repetition, b discounts long documents
K1 = 1.5
B = 0.75
# its idf ln(1 + (D - df + 0.5) / (df + 0.5)) is positive, so a score of 0 means no shared word
METHOD = "lucene"
TITLE_REPEATS = 2
TOKENS = (
    "NFC, lower case: letters, marks, digits and _; pairs of characters where words are not spaced"
)
# vowels of Hindi, Thai, ...
MARKS = "".join(c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M")
WORD = re.compile(rf"[\w{MARKS}]+")
UNSPACED_START = re.compile(f"[{UNSPACED_CLASS}]")
PARTS = re.compile(rf"[{UNSPACED_CLASS}]+|[^{UNSPACED_CLASS}]+")
BM25_SETTINGS = {
    "k1": K1,
    "b": B,
    "method": METHOD,
    "title_repeats": TITLE_REPEATS,
    "tokens": TOKENS,
}


def _words(text: str) -> list[str]:
    """The words by which documents and queries are compared.

    In a script without spaces every two neighbouring characters are a word, as in Lucene's
    CJKAnalyzer.

    >>> _words("The 2 Cafe\u0301s"), _words("\u6c34\u4e2d\u56fd GDP\u5317\u4eac")
    (['the', '2', 'cafés'], ['水中', '中国', 'gdp', '北京'])
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    return [
        word
        for run in WORD.findall(unicodedata.normalize("NFC", text).lower())
        for word in _parts(run)
    ]


def _parts(run: str) -> Iterator[str]:
    for part in PARTS.findall(run):
        if UNSPACED_START.match(part):
            yield from (part[at : at + 2] for at in range(max(len(part) - 1, 1)))
        else:
            yield part


def write_bm25(titles_and_texts: Iterable[tuple[str, str]], folder: Path) -> None:
    """Write bm25_*.npy (scores by word, as compressed sparse columns) and the vocabulary.

    The scores are bit for bit those of bm25s (Lu 2024, arXiv:2407.03618). bm25s itself holds every
    word of every document in memory several times over: 4 KB for a document of 100 words.

    Raises:
        ValueError: no document holds a word.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix="postings-") as scratch:
        inverter = Inverter(Path(scratch))
        for title, text in titles_and_texts:
            inverter.add(_words(title) * TITLE_REPEATS + _words(text))
        documents_W = inverter.finish()
        if not len(documents_W):
            raise ValueError(
                "no document to index contains a word (letters, digits). Check the corpus."
            )
        _write_scores(inverter, documents_W, folder)
        (folder / "bm25_vocabulary.json").write_text(json.dumps(inverter.vocabulary))


def _write_scores(inverter: Inverter, documents_W: np.ndarray, folder: Path) -> None:
    """Score every word of every document, streamed into files that numpy can map."""
    lengths_D = np.asarray(inverter.lengths)
    idf_W = np.log(1 + (len(lengths_D) - documents_W + 0.5) / (documents_W + 0.5)).astype(
        np.float32
    )
    discount_D = K1 * ((1 - B) + B * lengths_D / lengths_D.mean())
    np.save(folder / "bm25_indptr.npy", np.concatenate([[0], np.cumsum(documents_W)]))
    with (
        (folder / "bm25_data.npy").open("wb") as scores,
        (folder / "bm25_indices.npy").open("wb") as rows,
    ):
        for file, kind in ((scores, np.float32), (rows, np.int32)):
            _write_header(file, int(documents_W.sum()), kind)
        for postings in inverter.postings():
            count_P = postings.counts.astype(np.float32)
            score_P = idf_W[postings.words] * (count_P / (discount_D[postings.rows] + count_P))
            score_P.astype(np.float32).tofile(scores)
            postings.rows.astype(np.int32).tofile(rows)


def _write_header(file: BinaryIO, length: int, kind: Any) -> None:
    header = {
        "shape": (length,),
        "fortran_order": False,
        "descr": np.lib.format.dtype_to_descr(np.dtype(kind)),
    }
    np.lib.format.write_array_header_1_0(file, header)


class Bm25Ranker:
    """Sums the word scores (Lucene's idf, always positive).

    bm25s's own search is not used: it pads the result to k with documents that share no word with
    the query, and does not define the order of ties.
    """

    def __init__(self, folder: Path, num_documents: int):
        self._scores, self._rows, self._starts = (
            np.asarray(np.load(folder / f"bm25_{name}.npy", mmap_mode="r"))
            for name in ("data", "indices", "indptr")
        )
        self._vocabulary: dict[str, int] = json.loads(
            (folder / "bm25_vocabulary.json").read_bytes()
        )
        self._num_documents = num_documents

    def rank(self, queries: list[str], k: int) -> list[list[tuple[int, float]]]:
        """As `Ranker.rank`. Only documents that share a word with a query are ranked for it."""
        return [self._rank_one(query, k) for query in queries]

    def _rank_one(self, query: str, k: int) -> list[tuple[int, float]]:
        # Sorted, so that the order of a query's words cannot change a rounding and with it a tie.
        word_ids = sorted(
            self._vocabulary[word] for word in _words(query) if word in self._vocabulary
        )
        if not word_ids:
            return []
        score_D = np.zeros(self._num_documents, dtype=np.float32)
        for word_id in word_ids:
            postings = slice(self._starts[word_id], self._starts[word_id + 1])
            # 2.3 x faster than score_D[rows] += ...
            np.add.at(score_D, self._rows[postings], self._scores[postings])
        kth_best = np.partition(score_D, -k)[-k] if k < self._num_documents else 0.0
        # fewer than k documents share a word with the query if the k-th best has no score
        is_ranked = score_D >= kth_best if kth_best > 0 else score_D
        rows = np.flatnonzero(is_ranked)
        best = rows[np.argsort(-score_D[rows], kind="stable")[:k]]
        return [(int(row), float(score_D[row])) for row in best]
