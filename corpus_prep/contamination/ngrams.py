"""Documents that hold passages of evaluation sets, by n-gram containment.

Every run of 13 words of a passage is looked up in the documents (a shorter question is one run, its whole). Runs that
stand in many documents are common phrases and count for nothing. A passage is found in a document that holds a required
share of its runs, or a long unbroken stretch of them. 13 words, 8 at least, and 10 documents are those of Brown et al.,
"Language Models are Few-Shot Learners" (arXiv 2005.14165, appendix C); there one run suffices, which would drop 25 of
11,457 clean documents where this drops 6 (`decontamination` in data/bench/corpus.jsonl).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.contamination.benchmarks import WHOLE
from corpus_prep.contamination.words import grams, words
from corpus_prep.corpus import Corpus, Shard, sql, view_parquet
from corpus_prep.workers import Workers, map_shards
from warehouse.schemas.corpus import CONTAMINATIONS

HITS = pa.schema(
    [
        ("document", pa.int64()),  # its number
        ("gram", pa.uint64()),
        ("size", pa.int32()),  # words of the run
        ("word", pa.int64()),  # 0-based place of its first word in the document
        ("start", pa.int64()),  # its first character
        ("end", pa.int64()),  # the character behind it
    ]
)
RUNS, SPANS, FOUND, ROWS = (sql(n) for n in ("runs", "run_spans", "found_passages", "contaminations"))
SCREEN = sql("screen_contaminated")
NO_SIZES = pa.array([], pa.int32())
SLOTS_PER_GRAM = 8
ROWS_AT_ONCE = 2_048  # of found spans, with their texts


class NgramRule(BaseModel):
    """When a passage counts as found in a document."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ngram: PositiveInt = 13
    """Words of a run; a passage of fewer is one run."""
    min_words: PositiveInt = 8
    """Shorter questions are not looked for, nor are answers and contexts shorter than a run: answers belong in
    documents, and short contexts are headings."""
    max_documents: PositiveInt = 10
    """A run that stands in more documents than these is a common phrase, except within a passage of at least two runs'
    length that stands in a document whole."""
    min_share: float = Field(default=0.5, gt=0, le=1)
    """Of a passage's runs that are not common: as many must stand in the document, ..."""
    min_span_words: PositiveInt = 50
    """... or an unbroken stretch of so many words of it, one uncommon run among them."""
    reported_share: float = Field(default=0.2, gt=0, le=1)
    """Passages found to this share are stored, too: what a stricter rule would drop."""


def passage_runs(passages: pa.Table, rule: NgramRule) -> pa.Table:
    """The runs to look for, of rows of `passages`: passage (its row), gram, size."""
    kind = passages["kind"].to_numpy()
    found = [pa.table({"passage": pa.array([], pa.int64()), "gram": pa.array([], pa.uint64()), "size": NO_SIZES})]
    for some in words(passages["text"]):
        counts = np.unique(some.document, return_counts=True)[1]
        length = np.repeat(counts, counts)  # of the passage, for each of its words
        for size in range(min(rule.min_words, rule.ngram), rule.ngram + 1):
            gram, first = grams(some, size)
            of = kind[some.document[first]]
            own = (of != WHOLE) & (length[first] >= size) if size == rule.ngram else length[first] == size
            own &= (size == rule.ngram) | (of == "question")
            sizes = np.full(own.sum(), size, np.int32)
            found.append(pa.table({"passage": some.document[first][own], "gram": gram[own], "size": sizes}))
    return pa.concat_tables(found)


def write_runs(passages: pa.Table, rule: NgramRule, file: Path) -> None:
    pq.write_table(passage_runs(passages, rule), file)


def write_hits(shard: Shard, runs: Path) -> None:
    """Map: where runs (a Parquet file of `passage_runs`) stand in a shard's documents, as HITS."""
    finder = _finder(runs)
    with pq.ParquetWriter(shard.out, HITS, compression="zstd") as writer:
        for numbers, texts in shard.texts():
            for batch in finder.hits(numbers, texts):
                writer.write_batch(batch)


@functools.lru_cache(maxsize=1)
def _finder(runs: Path) -> Finder:
    return Finder(pq.read_table(runs, columns=["gram", "size"]))


class Finder:
    """Finds runs in documents."""

    def __init__(self, runs: pa.Table):
        gram, size = runs["gram"].to_numpy(), runs["size"].to_numpy()
        self._sets = {int(n): _HashSet(np.unique(gram[size == n])) for n in np.unique(size)}

    def hits(self, numbers: np.ndarray, texts: pa.Array) -> Iterator[pa.RecordBatch]:
        """HITS of documents of these numbers."""
        for found in words(texts):
            for size, known in self._sets.items():
                gram, first = grams(found, size)
                mine = known.find(gram)
                gram, first = gram[mine], first[mine]
                document = found.document[first]
                columns = {
                    "document": numbers[document],
                    "gram": gram,
                    "size": np.full(len(gram), size, np.int32),
                    "word": first - np.searchsorted(found.document, document),
                    "start": found.start[first],
                    "end": found.end[first + size - 1],
                }
                yield pa.record_batch(columns, schema=HITS)


class _HashSet:
    """Sorted hashes behind a bitmap of their first bits, which turns most others away at the price of one look."""

    def __init__(self, hashes: np.ndarray):
        self._hashes = hashes
        bits = max(10, (SLOTS_PER_GRAM * len(hashes)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._slots = np.zeros(1 << bits, bool)
        self._slots[hashes >> self._shift] = True

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Places of those that are in the set."""
        likely = np.flatnonzero(self._slots[hashes >> self._shift])
        place = np.minimum(np.searchsorted(self._hashes, hashes[likely]), len(self._hashes) - 1)
        return likely[self._hashes[place] == hashes[likely]]


@contextlib.contextmanager
def find_passages(
    corpus: Corpus, num_own: int, passages: pa.Table, runs: Path, rule: NgramRule, folder: Path, workers: Workers | None
) -> Iterator[Found]:
    """Look for the runs (a Parquet file of `passage_runs`) in all documents; those from number `num_own` on do not
    make a run common. `folder` keeps what a kill should not lose."""
    hits = map_shards(write_hits, corpus.shards(folder, "hits"), runs, workers)
    names = passages.select(["benchmark", "passage"]).append_column("number", pa.array(range(passages.num_rows)))
    common = {"num_documents": num_own, "max_documents": rule.max_documents}
    bounds = rule.model_dump(include={"min_share", "min_span_words", "reported_share"})
    with corpus.connect(folder / "spilled") as connection:
        view_parquet(connection, "hits", hits, HITS)
        connection.read_parquet(str(runs)).create_view("passage_runs")
        connection.register("passages", names)
        connection.execute(f"create table runs as {RUNS}", common)
        connection.execute(f"create table spans as {SPANS}")
        connection.execute(f"create table found as {FOUND}", {**bounds, "long_words": 2 * rule.ngram})
        yield Found(connection, num_own)


@dataclass(frozen=True)
class Found:
    """Which passages were found in which documents."""

    connection: duckdb.DuckDBPyConnection
    num_own: int

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Rows of `contaminations` for the corpus' own documents, by the rule `ngrams`."""
        found = self.connection.sql(ROWS, params={"num_documents": self.num_own})
        yield from found.to_arrow_reader(ROWS_AT_ONCE)

    def beyond(self) -> set[tuple[int, int]]:
        """Document and passage, by number, of what would drop documents behind the corpus' own."""
        found = self.connection.sql("select document, passage from found where removes")
        return {(document, passage) for document, passage in found.fetchall() if document >= self.num_own}


def screen_contaminated_documents(corpus: Corpus, found: Sequence[Path], scratch: Path) -> Iterator[pa.RecordBatch]:
    """Rows of `screenings`, from files of `contaminations`."""
    with corpus.connect(scratch / "spilled") as connection:
        view_parquet(connection, "contaminations", found, CONTAMINATIONS.arrow)
        yield from connection.sql(SCREEN).to_arrow_reader(ROWS_AT_ONCE)
