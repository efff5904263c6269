"""Documents that hold passages of evaluation sets, by n-gram containment.

Every run of 13 words of a passage is looked up in the documents (a shorter question is one run, its whole). Runs that
stand in many documents are common phrases and count for nothing. A passage is found in a document that holds a required
share of its runs, or a long unbroken stretch of them. 13 words, 8 at least, and 10 documents are those of Brown et al.,
"Language Models are Few-Shot Learners" (arXiv 2005.14165, appendix C); there one run suffices, which drops a quarter of
all clean documents of some corpora.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from corpus_prep.words import Words, grams, words

SQL = Path(__file__).parent / "sql"
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
SLOTS_PER_GRAM = 8


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


@dataclass(frozen=True)
class PassageGrams:
    """The runs to look for. rows: passage (its number), gram, size; by_size: sorted hashes."""

    rows: pa.Table
    by_size: dict[int, np.ndarray]


def passage_grams(texts: pa.Array | pa.ChunkedArray, kinds: Sequence[str], rule: NgramRule) -> PassageGrams:
    """The runs of passages, numbered by their row."""
    is_question = np.array([kind == "question" for kind in kinds])
    found: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    for some in words(texts):
        _, counts = np.unique(some.document, return_counts=True)
        length_W = np.repeat(counts, counts)
        for size in range(min(rule.min_words, rule.ngram), rule.ngram + 1):
            gram, first = grams(some, size)
            own = (length_W[first] == size) & is_question[some.document[first]]
            own = own | (length_W[first] >= size) if size == rule.ngram else own
            found.setdefault(size, []).append((some.document[first][own], gram[own]))
    tables, by_size = [], {}
    for size, parts in found.items():
        passage, gram = (np.concatenate(column) for column in zip(*parts, strict=True))
        tables.append(pa.table({"passage": passage, "gram": gram, "size": np.full(len(gram), size, np.int32)}))
        if len(gram):
            by_size[size] = np.unique(gram)
    return PassageGrams(pa.concat_tables(tables) if tables else HITS.empty_table(), by_size)


class Finder:
    """Finds runs in documents; picklable, and the same for all parts of a corpus."""

    def __init__(self, by_size: dict[int, np.ndarray]):
        self._sets = {size: _HashSet(hashes) for size, hashes in by_size.items()}

    def hits(self, documents: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """HITS of batches with the columns document and text."""
        for batch in documents:
            numbers = batch["document"].to_numpy()
            for found in words(batch["text"]):
                for size, known in self._sets.items():
                    yield self._of_size(found, numbers, size, known)

    def _of_size(self, found: Words, numbers: np.ndarray, size: int, known: _HashSet) -> pa.RecordBatch:
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
        return pa.record_batch([pa.array(columns[name], HITS.field(name).type) for name in HITS.names], schema=HITS)


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


def found_passages(
    hits: Sequence[Path],
    documents: Sequence[Path],
    passages: pa.Table,
    runs: PassageGrams,
    rule: NgramRule,
    memory: str = "4GB",
) -> Iterator[pa.RecordBatch]:
    """Rows of `contaminations` for the rule `ngrams`. passages: rows of that table, in the order they were numbered in.

    Raises:
        duckdb.Error: the files are no HITS, or no `documents`.
    """
    with duckdb.connect(config={"memory_limit": memory, "threads": 1}) as connection:
        for name, table in (("passages", passages.drop_columns("text")), ("passage_grams", runs.rows)):
            connection.register(name, table)
        given: dict[str, Any] = rule.model_dump(include={"max_documents", "min_share", "min_span_words"})
        given |= {"reported_share": min(rule.reported_share, rule.min_share), "long_words": 2 * rule.ngram}
        given |= {"hits": [str(path) for path in hits], "documents": [str(path) for path in documents]}
        sql = (SQL / "found_passages.sql").read_text(encoding="utf-8")
        yield from connection.sql(sql, params=given).to_arrow_reader(2_048)
