"""Corpora for tests and benchmarks: real passages if SELFPLAY_DATA names a folder of them, else
generated text; and edited copies of known similarity."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.schemas import DOCUMENTS

CORPORA = (
    "wiki_passages",
    "finance_tables_short",
    "technical_peps",
    "wiki_long_articles",
    "books_gutenberg",
)
PASSAGE_WORDS = (40, 160)


def data_folder() -> Path | None:
    """The folder that holds corpora/ and benchmarks/."""
    return Path(os.environ["SELFPLAY_DATA"]) if os.environ.get("SELFPLAY_DATA") else None


def passages(count: int, seed: int = 0) -> list[str]:
    """Passages of real documents, cut at random lengths; generated ones without data."""
    folder = data_folder()
    if folder is None:
        return list(generated(count, seed))
    rng = random.Random(seed)
    found = []
    for name in CORPORA:
        for text in pq.read_table(folder / "corpora" / f"{name}.parquet", columns=["text"])[
            "text"
        ].to_pylist():
            words = text.split(" ")
            at = 0
            while at < len(words):
                length = rng.randint(*PASSAGE_WORDS)
                found.append(" ".join(words[at : at + length]))
                at += length
    rng.shuffle(found)
    return found[:count]


def generated(count: int, seed: int = 0, words: tuple[int, int] = PASSAGE_WORDS) -> Iterator[str]:
    """Texts of made-up words, with the frequencies of real words (Zipf)."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(
        ["".join(letters) for letters in rng.choice(list("aeioubcdfglmnprst"), (30_000, 6))]
    )
    for start in range(0, count, 10_000):
        lengths = rng.integers(*words, min(10_000, count - start))
        drawn = vocabulary[np.minimum(rng.zipf(1.3, lengths.sum()), len(vocabulary)) - 1]
        yield from (" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1]))


def with_copies(texts: list[str], copies: int, seed: int = 0) -> list[str]:
    """The texts and edited copies of some of them, shuffled; 1 to 20 % of a copy's words differ."""
    rng = random.Random(seed)
    words = [word for text in texts[:1000] for word in text.split()]
    made = [edited(rng.choice(texts), rng.uniform(0.01, 0.2), words, rng) for _ in range(copies)]
    mixed = [*texts, *made]
    rng.shuffle(mixed)
    return mixed


def edited(text: str, share: float, vocabulary: list[str], rng: random.Random) -> str:
    """Replace, remove or insert runs of words in a text until a share of its words has changed."""
    words = text.split(" ")
    left = max(round(share * len(words)), 1)
    while left > 0 and words:
        run = min(rng.randint(1, 6), left)
        at = rng.randrange(len(words))
        new = rng.choices(vocabulary, k=run)
        words[at : at + run * rng.randint(0, 1)] = new if rng.random() < 0.7 else []
        left -= run
    return " ".join(words)


def documents(texts: list[str], first: int = 0) -> pa.Table:
    """Rows of `documents` with the ids d0, d1, ..."""
    given = {
        "document_id": [f"d{first + number}" for number in range(len(texts))],
        "title": [None] * len(texts),
        "text": texts,
        "source": ["made for a test"] * len(texts),
        "num_chars": [len(text) for text in texts],
    }
    columns = [given.get(name, [None] * len(texts)) for name in DOCUMENTS.arrow.names]
    return pa.table(columns, schema=DOCUMENTS.arrow)
