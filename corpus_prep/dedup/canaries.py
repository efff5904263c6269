"""Canaries of deduplication: near-duplicates made to measure the recall of the search."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.corpus import Corpus, sql
from corpus_prep.dedup.jaccard import jaccards_of_texts
from corpus_prep.dedup.shingles import Shingling
from corpus_prep.scripts import split_words
from warehouse.schemas.corpus import DOCUMENTS

DRAWN = sql("drawn")
MIN_WORDS = 40
JACCARDS = (0.75, 0.98)  # range of target similarities for edits
CANARIES = pa.schema(
    [
        ("document", pa.int64()),
        ("original", pa.int64()),
        ("jaccard", pa.float64()),
        ("found", pa.bool_()),
    ]
)


def plant(
    corpus: Corpus, count: int, seed: int, shingling: Shingling, file: Path
) -> tuple[Corpus, pa.Table]:
    """The corpus with edited copies of up to `count` of its documents appended, and the canaries.

    The copies are written to `file`. A canary is a copy's number, its original's number, and the
    exact Jaccard of the two.
    """
    originals = sample(corpus, count, seed)
    texts = originals["text"].to_pylist()
    words = [word for text in texts for word in split_words(text)]
    edited = [
        edit(text, words, shingling.size, random.Random(f"{seed} {n}"))
        for n, text in enumerate(texts)
    ]
    planted = behind(corpus, edited, file)
    numbers = pa.array(np.arange(len(edited)) + corpus.num_documents)
    similar = jaccards_of_texts(
        pa.array(texts, pa.string()), pa.array(edited, pa.string()), shingling
    )
    unknown = pa.array([False] * len(edited))
    return planted, pa.table([numbers, originals["document"], similar, unknown], schema=CANARIES)


def behind(corpus: Corpus, texts: list[str], file: Path) -> Corpus:
    """The corpus with one document appended for each text; the documents are written to `file`."""
    ids = [f"canary-{number}" for number in range(len(texts))]
    lengths = [len(text) for text in texts]
    values = {"document_id": ids, "title": ids, "text": texts, "source": ids, "num_chars": lengths}
    columns = [values.get(name, [None] * len(ids)) for name in DOCUMENTS.arrow.names]
    pq.write_table(pa.table(columns, schema=DOCUMENTS.arrow), file)
    return dataclasses.replace(corpus, files=(*corpus.files, file))


def write_found(
    canaries: pa.Table, edges: Iterable[tuple[np.ndarray, np.ndarray]], file: Path
) -> None:
    """Write the canaries as Parquet.

    Each says whether there is an edge between it and its original.
    """
    wanted = dict(
        zip(canaries["document"].to_pylist(), canaries["original"].to_pylist(), strict=True)
    )
    first_canary = min(wanted, default=0)
    detected = set()
    for first, second in edges:
        chosen = second >= first_canary
        detected |= {
            c
            for o, c in zip(first[chosen].tolist(), second[chosen].tolist(), strict=True)
            if wanted.get(c) == o
        }
    flags = pa.array([c in detected for c in wanted], pa.bool_())
    told = canaries.set_column(
        canaries.schema.get_field_index("found"), CANARIES.field("found"), flags
    )
    pq.write_table(told, file)


def edit(text: str, vocabulary: list[str], shingle_size: int, rng: random.Random) -> str:
    """Replace, remove, insert or swap words until the Jaccard is close to a target.

    The target is drawn from the range JACCARDS. Editing one word changes `shingle_size` of n
    shingles: with k edits far apart from each other the Jaccard is (n - k * size) / (n + k * size).
    """
    words = split_words(text)
    target = rng.uniform(*JACCARDS)
    for _ in range(max(round(len(words) * (1 - target) / (1 + target) / shingle_size), 1)):
        at = rng.randrange(len(words))
        kind = rng.choice(("replace", "remove", "insert", "swap"))
        if kind == "replace":
            words[at] = rng.choice(vocabulary)
        elif kind == "remove":
            del words[at]
        elif kind == "insert":
            words.insert(at, rng.choice(vocabulary))
        else:
            words[at - 1], words[at] = words[at], words[at - 1]
    return "".join(words).strip()


def sample(corpus: Corpus, count: int, seed: int) -> pa.Table:
    """Columns document and text of up to `count` random documents of at least MIN_WORDS words."""
    candidates = np.flatnonzero(corpus.counts)
    drawn = np.random.default_rng(seed).choice(
        candidates, min(3 * count, len(candidates)), replace=False
    )
    with corpus.connect() as connection:
        connection.register("drawn", pa.table({"document": drawn, "place": np.arange(len(drawn))}))
        documents = connection.sql(DRAWN).to_arrow_table()
    long_enough = [len(split_words(text)) >= MIN_WORDS for text in documents["text"].to_pylist()]
    return documents.filter(pa.array(long_enough, pa.bool_())).slice(0, count)
