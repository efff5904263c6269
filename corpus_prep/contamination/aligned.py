"""Find passages that a document contains in edited form or in part, by local alignment of words.

A seed is a short run of words that few documents and few passages contain. If a document and a
passage share a seed, the words around it are aligned (Smith and Waterman 1981): equal words add
their information, -log2 of the word's frequency, and every other word costs GAP_BITS. With one word
in ten replaced, a passage still aligns, although hardly any run of 13 words survives. A passage is
found if enough of its words are equal and carry enough information; words of common phrases carry
none. For a context, a part is enough if it is unchanged and carries as much information as a whole
sentence: documents about the same things share names and titles, but rarely such sentences. Answers
are not searched for: they belong in documents.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from corpus_prep.contamination.words import Words, grams, words
from corpus_prep.corpus import Corpus, Shard
from corpus_prep.dedup.canaries import sample
from corpus_prep.workers import Workers, map_shards

REACH = 128  # words aligned on either side of a seed
SAMPLE = 500  # documents from which word frequencies are estimated
MIN_WORDS = 1 << 16  # fewer words than this are too few to estimate frequencies from
GAP_BITS = 6.0
# Words in a seed; one fewer for a question of at most twice as many words.
SEED_WORDS = 5
# A seed that occurs in more documents or more different passages is a common phrase: its words are
# aligned but carry no information.
COMMON_SEED = {"seed_documents": 5, "seed_passages": 8}
# When an edited passage counts as found; `bits` are the information of its equal words. The values
# were chosen on planted passages; tests/bench/contamination.py reports how many of those are found.
THRESHOLDS = {
    # a question or a context: this share of its words is equal, with this much information, that of
    # about 16 words that are not among the most frequent
    "min_share": 0.45,
    "min_bits": 200.0,
    # or a part of a context: this share of the aligned words is equal, with this much information,
    # that of a sentence of about 15 words
    "part_density": 0.95,
    "part_bits": 150.0,
    # or a question: this share of its words is equal, with this much information if its first and
    # last words are equal, too, or more if they are not, because a document answers a question in
    # the words that follow the first
    "question_share": 0.85,
    "question_bits": 40.0,
    "question_part_bits": 90.0,
    # or a question: this smaller share, with more information than most titles have, because
    # questions quote titles
    "question_edited_share": 0.8,
    "question_edited_bits": 110.0,
}
SEEDS = pa.schema(
    [("passage", pa.int64()), ("gram", pa.uint64()), ("size", pa.int32()), ("word", pa.int64())]
)
CANDIDATES = pa.schema(
    [
        ("document", pa.int64()),
        ("passage", pa.int64()),
        ("word", pa.int64()),
        ("passage_word", pa.int64()),
    ]
)
ALIGNED = pa.schema(
    [
        ("document", pa.int64()),
        ("passage", pa.int64()),
        ("share", pa.float64()),  # share of the passage's words that are equal
        ("bits", pa.float64()),  # information of the equal words outside common phrases
        ("density", pa.float64()),  # share of the aligned words that are equal
        ("is_whole", pa.bool_()),  # whether the passage is aligned from its first word to its last
        ("start", pa.int64()),  # first character
        ("end", pa.int64()),  # one past the last character
    ]
)


def first_equals(passages: pa.Table) -> np.ndarray:
    """For each passage, the row of the first with the same text and kind (int64).

    A file with one question per row repeats a context for each of its questions.
    """
    first_with: dict[tuple[str, str], int] = {}
    keys = zip(passages["kind"].to_pylist(), passages["text"].to_pylist(), strict=True)
    rows = [first_with.setdefault(key, row) for row, key in enumerate(keys)]
    return np.array(rows, np.int64)


def passage_seeds(passages: pa.Table, least: dict[str, int]) -> pa.Table:
    """The seeds of passages: passage (its row), gram, size, word (its place in the passage).

    `least` gives the fewest words of a passage by kind. Kinds that it lacks are not searched for;
    of equal passages, only the first is.
    """
    kinds = passages["kind"].to_numpy()
    parts = [SEEDS.empty_table()]
    needed = np.array([least.get(kind, 1 << 62) for kind in kinds], np.int64)
    needed[first_equals(passages) != np.arange(passages.num_rows)] = 1 << 62
    for some in words(passages["text"]):
        counts = np.unique(some.document, return_counts=True)[1]
        length = np.repeat(counts, counts)  # of the passage, for each of its words
        begins = np.repeat(np.cumsum(counts) - counts, counts)
        is_short = length <= 2 * SEED_WORDS
        for size, chosen in ((SEED_WORDS, ~is_short), (SEED_WORDS - 1, is_short)):
            gram, first = grams(some, size)
            own = chosen[first] & (length[first] >= needed[some.document[first]])
            at = first[own]
            columns = [
                some.document[at],
                gram[own],
                np.full(len(at), size, np.int32),
                at - begins[at],
            ]
            parts.append(pa.table(columns, schema=SEEDS))
    return pa.concat_tables(parts)


@dataclass(frozen=True)
class Passages:
    """All passages' words in sequence: hashes, information, and which are outside common phrases;
    `starts` says where each passage begins."""

    hashes: np.ndarray
    bits: np.ndarray
    is_rare: np.ndarray
    starts: np.ndarray

    @classmethod
    def load(cls, file: Path) -> Passages:
        """Read what `write_passages` wrote."""
        with np.load(file) as arrays:
            return cls(*(arrays[name] for name in ("hashes", "bits", "is_rare", "starts")))


def align(
    corpus: Corpus,
    own: Corpus,
    passages: pa.Table,
    common: pa.Table,
    candidates: Path,
    folder: Path,
    workers: Workers | None,
) -> list[Path]:
    """The files of ALIGNED, with the best alignment of every candidate.

    `own` is the corpus without canaries. `passages` are rows of `passages`, `common` the rows of
    SEEDS that are common phrases, and `candidates` is a sorted Parquet file of CANDIDATES. Partial
    results in `folder` survive a kill.
    """
    write_passages(passages, own, common, folder / "passages.npz")
    some = documents_of(candidates, corpus.num_documents)
    files = (folder / "passages.npz", candidates)
    return map_shards(write_aligned, corpus.shards(folder, "aligned", some), files, workers)


def write_passages(passages: pa.Table, corpus: Corpus, common: pa.Table, file: Path) -> None:
    """Write the words of passages with their information, which depends on their frequency.

    Frequencies are those in the passages and in a sample of the corpus. common: the rows of SEEDS
    that are common phrases.
    """
    parts = list(words(passages["text"]))
    hashes = np.concatenate([part.hash for part in parts])
    of = np.concatenate([part.document for part in parts])
    starts = np.searchsorted(of, np.arange(passages.num_rows + 1))
    drawn = [part.hash for part in words(sample(corpus, SAMPLE, seed=0)["text"])]
    seen, counts = np.unique(np.concatenate([hashes, *drawn]), return_counts=True)
    bits = np.log2(max(counts.sum(), MIN_WORDS)) - np.log2(counts)
    is_rare = np.ones(len(hashes), bool)
    first = starts[common["passage"].to_numpy()] + common["word"].to_numpy()
    for place in range(max(common["size"].to_pylist(), default=0)):
        is_rare[first[common["size"].to_numpy() > place] + place] = False
    np.savez(
        file,
        hashes=hashes,
        bits=bits[np.searchsorted(seen, hashes)],
        is_rare=is_rare,
        starts=starts,
    )


def write_aligned(shard: Shard, files: tuple[Path, Path]) -> None:
    """Map step: the best alignment at every candidate (a sorted Parquet file of CANDIDATES) in a
    shard's documents."""
    words_file, candidates_file = files
    last = shard.first + len(shard.counts) - 1
    candidates = pq.read_table(
        candidates_file, filters=[("document", ">=", shard.first), ("document", "<=", last)]
    ).to_pydict()
    columns = [np.asarray(candidates[name], np.int64) for name in CANDIDATES.names]
    with pq.ParquetWriter(shard.out, ALIGNED) as writer:
        for numbers, texts in shard.texts():
            for batch in words(texts):
                writer.write_table(_align(batch, numbers, columns, _passages(words_file)))


@functools.lru_cache(maxsize=1)
def _passages(file: Path) -> Passages:
    return Passages.load(file)


def _align(
    batch: Words, numbers: np.ndarray, columns: list[np.ndarray], passages: Passages
) -> pa.Table:
    document, passage, word, passage_word = columns
    chosen = slice(0, 0)
    if len(batch.hash):
        low = np.searchsorted(document, numbers[batch.document[0]])
        high = np.searchsorted(document, numbers[batch.document[-1]], "right")
        chosen = slice(low, high)
    local = np.searchsorted(numbers, document[chosen])
    bits, (equal, first, last, is_whole, num_aligned) = _align_all(
        batch.hash,
        np.searchsorted(batch.document, local),
        np.searchsorted(batch.document, local, "right"),
        word[chosen],
        passage[chosen],
        passage_word[chosen],
        passages.hashes,
        passages.bits,
        passages.is_rare,
        passages.starts,
    )
    share = equal / np.diff(passages.starts)[passage[chosen]]
    rows = [
        document[chosen],
        passage[chosen],
        share,
        bits,
        equal / np.maximum(num_aligned, 1),
        is_whole > 0,
        batch.start[first],
        batch.end[last],
    ]
    return pa.table(rows, schema=ALIGNED)


# plain arrays, since numba compiles no dataclasses
@njit(cache=True, nogil=True)
def _align_all(
    hashes, begins, ends, words, passages, passage_words, own_hashes, own_bits, own_rare, starts
):
    """For every candidate, its best alignment: information (float64), and as int64 rows the number
    of equal words, its first and last word in `hashes`, whether it spans the passage from its
    first word to its last, and the number of aligned words, of the document or the passage,
    whichever has more."""
    information = np.zeros(len(words))
    places = np.zeros((5, len(words)), np.int64)
    for i in range(len(words)):
        own_start = starts[passages[i]]
        own_end = starts[passages[i] + 1]
        own_at = own_start + passage_words[i]
        at = begins[i] + words[i]
        p0 = max(own_start, own_at - REACH)
        p1 = min(own_end, own_at + REACH)
        before = 2 * (own_at - p0) + 8
        after = 2 * (p1 - own_at) + 8
        d0 = max(begins[i], at - min(before, REACH))
        d1 = min(ends[i], at + min(after, REACH))
        own = own_hashes[p0:p1], own_bits[p0:p1], own_rare[p0:p1]
        information[i], equal, first, last, own_first, own_last = _best(hashes[d0:d1], *own)
        is_whole = int(p0 + own_first == own_start and p0 + own_last + 1 == own_end)
        num_aligned = max(last - first, own_last - own_first) + 1
        places[:, i] = equal, d0 + first, d0 + last, is_whole, num_aligned
    return information, places


@njit(cache=True, nogil=True)
def _best(hashes, own, bits, is_rare):
    """The best local alignment: information and number of its equal words, first, last, own first,
    own last: its ends in `hashes` and in `own`."""
    n = len(own)
    score = np.zeros(n + 1)
    held = np.zeros(n + 1)
    equal = np.zeros(n + 1, np.int64)
    begun = np.zeros(n + 1, np.int64)
    own_begun = np.arange(n + 1)
    most = 0.0
    best = (0.0, 0, 0, 0, 0, 0)
    for i in range(len(hashes)):
        diagonal = 0.0, 0.0, 0, i, 0
        for j in range(1, n + 1):
            up = score[j], held[j], equal[j], begun[j], own_begun[j]
            s, h, e, b, o = diagonal
            if hashes[i] == own[j - 1]:
                s = s + bits[j - 1]
                h = h + bits[j - 1] * is_rare[j - 1]
                e = e + 1
            else:
                s -= GAP_BITS
            if up[0] - GAP_BITS > s:
                s = up[0] - GAP_BITS
                h = up[1]
                e = up[2]
                b = up[3]
                o = up[4]
            if score[j - 1] - GAP_BITS > s:
                s = score[j - 1] - GAP_BITS
                h = held[j - 1]
                e = equal[j - 1]
                b = begun[j - 1]
                o = own_begun[j - 1]
            if s <= 0:
                s = 0.0
                h = 0.0
                e = 0
                b = i + 1
                o = j
            score[j] = s
            held[j] = h
            equal[j] = e
            begun[j] = b
            own_begun[j] = o
            if s > most:
                most = s
                best = (h, e, b, i, o, j - 1)
            diagonal = up
    return best


def documents_of(candidates: Path, num_documents: int) -> np.ndarray:
    """Whether each document has candidates (bool)."""
    is_candidate = np.zeros(num_documents, bool)
    with pq.ParquetFile(candidates) as file:
        for batch in _column(file, "document"):
            is_candidate[batch] = True
    return is_candidate


def _column(file: pq.ParquetFile, name: str) -> Iterator[np.ndarray]:
    for batch in file.iter_batches(columns=[name]):
        yield batch[name].to_numpy()
