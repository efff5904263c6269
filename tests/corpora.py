"""Corpora for tests and benchmarks: real passages where SELFPLAY_DATA names a folder of them, generated text otherwise;
edited copies of known similarity; and an exact join of all pairs as an outside oracle."""

from __future__ import annotations

import os
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse

from warehouse.schemas import DOCUMENTS

CORPORA = ("wiki_passages", "finance_tables_short", "technical_peps", "wiki_long_articles", "books_gutenberg")
PASSAGE_WORDS = (40, 160)
MARKS = "".join(c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M")
UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORDS = re.compile(rf"(?=[\w{MARKS}])[{UNSPACED}]|(?:(?![{UNSPACED}_])[\w{MARKS}])+")


def data_folder() -> Path | None:
    """The folder that holds corpora/ and benchmarks/."""
    return Path(os.environ["SELFPLAY_DATA"]) if os.environ.get("SELFPLAY_DATA") else None


def passages(count: int, seed: int = 0) -> list[str]:
    """Passages of real documents, cut at random lengths; generated ones where there is no data."""
    folder = data_folder()
    if folder is None:
        return list(generated(count, seed))
    rng, found = random.Random(seed), []
    for name in CORPORA:
        for text in pq.read_table(folder / "corpora" / f"{name}.parquet", columns=["text"])["text"].to_pylist():
            words, at = text.split(" "), 0
            while at < len(words):
                length = rng.randint(*PASSAGE_WORDS)
                found.append(" ".join(words[at : at + length]))
                at += length
    rng.shuffle(found)
    return found[:count]


def generated(count: int, seed: int = 0, words: tuple[int, int] = PASSAGE_WORDS) -> Iterator[str]:
    """Texts of made-up words, as frequent as words are (Zipf)."""
    rng = np.random.default_rng(seed)
    vocabulary = np.array(["".join(letters) for letters in rng.choice(list("aeioubcdfglmnprst"), (30_000, 6))])
    for start in range(0, count, 10_000):
        lengths = rng.integers(*words, min(10_000, count - start))
        drawn = vocabulary[np.minimum(rng.zipf(1.3, lengths.sum()), len(vocabulary)) - 1]
        yield from (" ".join(part) for part in np.split(drawn, np.cumsum(lengths)[:-1]))


def with_copies(texts: list[str], copies: int, seed: int = 0) -> list[str]:
    """The texts and edited copies of some of them, shuffled: 1 to 20 % of a copy's words differ."""
    rng = random.Random(seed)
    words = [word for text in texts[:1000] for word in text.split()]
    made = [edited(rng.choice(texts), rng.uniform(0.01, 0.2), words, rng) for _ in range(copies)]
    mixed = [*texts, *made]
    rng.shuffle(mixed)
    return mixed


def edited(text: str, share: float, vocabulary: list[str], rng: random.Random) -> str:
    """A text in which runs of words were replaced, removed or put in, until a share of them was touched."""
    words = text.split(" ")
    left = max(round(share * len(words)), 1)
    while left > 0 and words:
        run = min(rng.randint(1, 6), left)
        at, new = rng.randrange(len(words)), rng.choices(vocabulary, k=run)
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


def word_shingles(text: str, size: int = 5) -> set[str]:
    """Sets of word 5-grams as a user of datasketch or rensa would make them."""
    return joined(re.findall(r"\w+", text.lower()), size)


def defined_shingles(text: str, size: int = 5) -> set[str]:
    """The same by the definition in corpus_prep.shingles."""
    return joined(WORDS.findall(unicodedata.normalize("NFKC", text).lower()), size)


def joined(words: list[str], size: int) -> set[str]:
    return {" ".join(words[at : at + size]) for at in range(max(len(words) - size + 1, 1 if words else 0))}


def exact_join(sets: list[set[str]], threshold: float) -> dict[tuple[int, int], float]:
    """All pairs from a Jaccard on, by a sparse matrix product over shingles that stand in several texts."""
    seen = Counter(shingle for shingles in sets for shingle in shingles)
    shared = {shingle: number for number, shingle in enumerate(s for s, count in seen.items() if count > 1)}
    columns = [[shared[s] for s in shingles if s in shared] for shingles in sets]
    indptr = np.cumsum([0, *map(len, columns)])
    flat = np.array([c for column in columns for c in column], np.int64)
    incidence = scipy.sparse.csr_matrix((np.ones(len(flat), np.int32), flat, indptr), (len(sets), len(shared)))
    sizes = np.array([len(shingles) for shingles in sets])
    found = {}
    for start in range(0, len(sets), 2000):
        both = (incidence[start : start + 2000] @ incidence.T).tocoo()
        first, second = both.row + start, both.col
        jaccard = both.data / (sizes[first] + sizes[second] - both.data)
        kept = (first < second) & (jaccard >= threshold - 1e-12)
        found |= dict(zip(zip(first[kept].tolist(), second[kept].tolist(), strict=True), jaccard[kept], strict=True))
    return found
