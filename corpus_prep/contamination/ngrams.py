"""Find documents that contain passages of evaluation sets, by n-gram containment.

Every run of 13 words of a passage is looked up in the documents; a shorter question is one run.
Runs that occur in many documents are common phrases and do not count. A passage is found if a
document holds the required share of its runs, or a long unbroken stretch of them. The numbers (13
words, at least 8, and 10 documents) are those of Brown et al., "Language Models are Few-Shot
Learners" (arXiv 2005.14165, appendix C). In that paper one run suffices, which would drop 25 of
11,457 clean documents; this rule drops 6 (`decontamination` in data/bench/corpus.jsonl).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.contamination.aligned import (
    ALIGNED,
    COMMON_SEED,
    THRESHOLDS,
    align,
    first_equals,
    passage_seeds,
)
from corpus_prep.contamination.benchmarks import WHOLE
from corpus_prep.contamination.words import grams, words
from corpus_prep.corpus import Corpus, Shard, sql, view_parquet
from corpus_prep.workers import Workers, map_shards
from warehouse.schemas.corpus import CONTAMINATIONS

HITS = pa.schema(
    [
        ("document", pa.int64()),  # its number
        ("gram", pa.uint64()),
        ("size", pa.int32()),  # number of words in the run
        ("word", pa.int64()),  # 0-based place of its first word in the document
        ("start", pa.int64()),  # its first character
        ("end", pa.int64()),  # one past its last character
        ("alone", pa.bool_()),  # whether it is a whole sentence or line
    ]
)
RUNS = sql("runs")
SPANS = sql("run_spans")
FOUND = sql("found_passages")
ROWS = sql("contaminations")
CANDIDATES_OF = sql("alignment_candidates")
EDITED = sql("aligned_passages")
SCREEN = sql("screen_contaminated")
COMMON_SEEDS = sql("common_seeds")
NO_SIZES = pa.array([], pa.int32())
SLOTS_PER_GRAM = 8
AROUND = 40  # characters inspected on either side of a short question
# blanks, and the ends of sentences, including those of scripts with their own marks: Chinese and
# Japanese, Arabic and Urdu, Hindi, Greek, Armenian, Ethiopic, Burmese and Khmer
BLANK = r"[ \t\xa0\u3000]*"
ENDS = ".!?:;…。！？：；｡؟؛۔।॥\u037e·։՞።፧။។"
# what precedes a sentence: the end of another, then marks that open this one
ENDED = re.compile(
    rf"(?:^|[{ENDS}\n\r|>\])\"“”»」』）】》〉]|\d[.)]){BLANK}[\"“”‘’'«(*_#\-–—¿¡「『（【《〈]*{BLANK}$"
)
# what follows a sentence: marks that close it, and its end
BEGUN = re.compile(rf"[\"“”‘’')*_»」』）】》〉]*{BLANK}[,\-–—，、،]?{BLANK}(?:[{ENDS}\n\r|<]|$)")
ROWS_AT_ONCE = 2_048  # found spans with their texts
ALONE_WORDS = 7  # shorter questions must be a whole sentence or line of the document
# passages found to at least this share are stored, too: they show what a stricter rule would drop
REPORTED_SHARE = 0.2


class NgramRule(BaseModel):
    """When a passage counts as found."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    ngram: PositiveInt = Field(
        default=13, description="words in a run; a shorter passage is one run"
    )
    min_words: PositiveInt = Field(
        default=5,
        description=(
            "shorter questions are not searched for; nor are contexts shorter than one run,"
            " which are headings, nor answers shorter than two: answers belong in documents"
        ),
    )
    max_documents: PositiveInt = Field(
        default=10,
        description=(
            "a run in more documents is a common phrase, except in a passage of at least"
            " two runs' length that a document contains whole"
        ),
    )
    min_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="minimum share of a passage's uncommon runs for which a document is dropped",
    )
    min_span_words: PositiveInt = Field(
        default=50,
        description=(
            "so does an unbroken stretch of this many of its words, with an uncommon run among them"
        ),
    )


def passage_runs(passages: pa.Table, rule: NgramRule) -> pa.Table:
    """The runs of `passages` to search for: passage (its row), gram, size."""
    kind = passages["kind"].to_numpy()
    runs = [
        pa.table(
            {
                "passage": pa.array([], pa.int64()),
                "gram": pa.array([], pa.uint64()),
                "size": NO_SIZES,
            }
        )
    ]
    for some in words(passages["text"]):
        counts = np.unique(some.document, return_counts=True)[1]
        length = np.repeat(counts, counts)  # for each word, the length of its passage
        for size in range(min(rule.min_words, rule.ngram), rule.ngram + 1):
            gram, first = grams(some, size)
            of = kind[some.document[first]]
            if size == rule.ngram:
                own = (of != WHOLE) & (length[first] >= size)
            else:
                own = length[first] == size
            own &= (of != "answer") | (length[first] >= 2 * rule.ngram)
            own &= (size == rule.ngram) | (of == "question")
            sizes = np.full(own.sum(), size, np.int32)
            runs.append(
                pa.table({"passage": some.document[first][own], "gram": gram[own], "size": sizes})
            )
    return pa.concat_tables(runs)


def write_runs(passages: pa.Table, rule: NgramRule, file: Path) -> None:
    """Write `passage_runs` of the passages as Parquet, for `write_hits` to search for."""
    pq.write_table(passage_runs(passages, rule), file)


def write_seeds(passages: pa.Table, rule: NgramRule, file: Path) -> None:
    """Write the seeds of the passages to search for in edited form.

    These are contexts of at least one run, and questions of more than ALONE_WORDS words.
    """
    least = {"question": ALONE_WORDS + 1, "context": rule.ngram}
    pq.write_table(passage_seeds(passages, least), file)


def write_hits(shard: Shard, files: tuple[Path, Path | None]) -> None:
    """Map step: where runs and seeds occur in a shard's documents, as HITS.

    `files` are those of the runs and of the seeds: Parquet with the columns gram and size. For runs
    of at most ALONE_WORDS words, HITS also say whether they stand alone.
    """
    finder = _finder(*files)
    with pq.ParquetWriter(shard.out, HITS, compression="zstd") as writer:
        for numbers, texts in shard.texts():
            for batch in finder.hits(numbers, texts):
                writer.write_batch(batch)


@functools.lru_cache(maxsize=1)
def _finder(runs: Path, seeds: Path | None) -> Finder:
    own, *more = (
        pq.read_table(file, columns=["gram", "size"]) for file in (runs, seeds) if file is not None
    )
    return Finder(
        pa.concat_tables([own, *more]),
        own["gram"].to_numpy()[own["size"].to_numpy() <= ALONE_WORDS],
    )


class Finder:
    """Finds runs in documents, and whether those in `short` stand alone."""

    def __init__(self, runs: pa.Table, short: np.ndarray | None = None):
        gram = runs["gram"].to_numpy()
        size = runs["size"].to_numpy()
        self._short = np.empty(0, np.uint64) if short is None else short
        self._sets = {int(n): _HashSet(np.unique(gram[size == n])) for n in np.unique(size)}

    def hits(self, numbers: np.ndarray, texts: pa.Array) -> Iterator[pa.RecordBatch]:
        """HITS in the texts of documents with these numbers."""
        for batch in words(texts):
            for size, known in self._sets.items():
                gram, first = grams(batch, size)
                mine = known.find(gram)
                gram = gram[mine]
                first = first[mine]
                document = batch.document[first]
                columns = {
                    "document": numbers[document],
                    "gram": gram,
                    "size": np.full(len(gram), size, np.int32),
                    "word": first - np.searchsorted(batch.document, document),
                    "start": batch.start[first],
                    "end": batch.end[first + size - 1],
                    "alone": self._alone(
                        texts, gram, document, batch.start[first], batch.end[first + size - 1]
                    ),
                }
                yield pa.record_batch(columns, schema=HITS)

    def _alone(
        self,
        texts: pa.Array,
        gram: np.ndarray,
        document: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
    ):
        """Whether each stretch is a whole sentence or line (bool).

        True for long runs, which are not inspected.
        """
        alone = ~np.isin(gram, self._short)
        for i in np.flatnonzero(~alone):
            text = texts[int(document[i])].as_py()
            before = text[max(start[i] - AROUND, 0) : start[i]]
            after = _without_marks(text[end[i] : end[i] + AROUND])
            alone[i] = ENDED.search(before) is not None and BEGUN.match(after) is not None
        return alone


def _without_marks(text: str) -> str:
    """The text without leading vowel signs and accents.

    They belong to the word before, but `words` skips them.
    """
    return "".join(itertools.dropwhile(lambda c: unicodedata.category(c).startswith("M"), text))


class _HashSet:
    """Sorted hashes behind a bitmap of their first bits.

    The bitmap rejects most other hashes with one lookup.
    """

    def __init__(self, hashes: np.ndarray):
        self._hashes = hashes
        bits = max(10, (SLOTS_PER_GRAM * len(hashes)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._slots = np.zeros(1 << bits, bool)
        self._slots[hashes >> self._shift] = True

    def find(self, hashes: np.ndarray) -> np.ndarray:
        """Indices of the given hashes that are in the set."""
        likely = np.flatnonzero(self._slots[hashes >> self._shift])
        place = np.minimum(np.searchsorted(self._hashes, hashes[likely]), len(self._hashes) - 1)
        return likely[self._hashes[place] == hashes[likely]]


@contextlib.contextmanager
def find_passages(
    corpus: Corpus,
    own: Corpus,
    passages: pa.Table,
    runs: Path,
    rule: NgramRule,
    alignment: bool,
    folder: Path,
    workers: Workers | None,
) -> Iterator[FoundPassages]:
    """Search all documents for the runs, and for edited or partial passages.

    `runs` is a Parquet file of `passage_runs`; edited or partial passages are searched for where
    too few runs are found. `own` is the corpus without the canaries behind its documents: they
    neither make a run common nor change the information of a word. Partial results in `folder`
    survive a kill.
    """
    seeds = folder / "seeds.parquet" if alignment else None
    if seeds is not None:
        write_seeds(passages, rule, seeds)
    hits = map_shards(write_hits, corpus.shards(folder, "hits"), (runs, seeds), workers)
    names = passages.select(["benchmark", "passage", "kind"])
    names = names.append_column("number", pa.array(range(passages.num_rows)))
    names = names.append_column("first_equal", pa.array(first_equals(passages)))
    limits = {"num_documents": own.num_documents, "max_documents": rule.max_documents}
    bounds = rule.model_dump(include={"min_share", "min_span_words"})
    with corpus.connect(folder / "spilled") as connection:
        view_parquet(connection, "hits", hits, HITS)
        connection.read_parquet(str(runs)).create_view("passage_runs")
        connection.register("passages", names)
        connection.execute(f"create table runs as {RUNS}", limits)
        connection.execute(f"create table spans as {SPANS}", {"alone_words": ALONE_WORDS})
        connection.execute(
            f"create table found as {FOUND}",
            {**bounds, "reported_share": REPORTED_SHARE, "long_words": 2 * rule.ngram},
        )
        aligned = []
        if seeds is not None:
            connection.read_parquet(str(seeds)).create_view("seeds")
            seed_limits = {"num_documents": own.num_documents, **COMMON_SEED}
            candidates = folder / "candidates.parquet"
            connection.sql(CANDIDATES_OF, params=seed_limits).write_parquet(str(candidates))
            common = connection.sql(COMMON_SEEDS, params=seed_limits).to_arrow_table()
            aligned = align(corpus, own, passages, common, candidates, folder, workers)
        view_parquet(connection, "aligned", aligned, ALIGNED)
        connection.execute(
            f"create table edited as {EDITED}", {**THRESHOLDS, "reported_share": REPORTED_SHARE}
        )
        yield FoundPassages(connection, own.num_documents)


@dataclass(frozen=True)
class FoundPassages:
    """The passages that were found, and the documents in which they were found."""

    connection: duckdb.DuckDBPyConnection
    num_own: int

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Rows of `contaminations` for the corpus's own documents.

        The rules are `ngrams` and `aligned`.
        """
        result = self.connection.sql(ROWS, params={"num_documents": self.num_own})
        yield from result.to_arrow_reader(ROWS_AT_ONCE)

    def beyond(self) -> set[tuple[int, int]]:
        """(document, passage), by number, of every match that would drop an added document.

        Added documents are those after the corpus's own.
        """
        result = self.connection.sql(
            "select document, passage from found where removes union select document, passage from"
            " edited where removes"
        )
        return {
            (document, passage)
            for document, passage in result.fetchall()
            if document >= self.num_own
        }


def screen_contaminated_documents(
    corpus: Corpus, contaminations: Sequence[Path], scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Yield rows of `screenings`, in corpus order.

    A document is dropped if one of `contaminations` (files of that table) removes it. Queries spill
    to a folder in `scratch`.
    """
    with corpus.connect(scratch / "spilled") as connection:
        view_parquet(connection, "contaminations", contaminations, CONTAMINATIONS.arrow)
        yield from connection.sql(SCREEN).to_arrow_reader(ROWS_AT_ONCE)
