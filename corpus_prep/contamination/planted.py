"""Canaries of decontamination: passages put into documents on purpose, to measure what a search for them finds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.corpus import Corpus
from corpus_prep.dedup.canaries import behind, sample

PLANTED = pa.schema([("document", pa.int64()), ("passage", pa.int64()), ("found", pa.bool_())])


def plant_passages(
    corpus: Corpus, passages: pa.Table, runs: Path, count: int, seed: int, file: Path
) -> tuple[Corpus, list[tuple[int, int]]]:
    """The corpus with copies of up to `count` of its documents behind its own, each with a passage that has runs put
    between two words; written to `file`. And document and passage of each, by number."""
    hosts = sample(corpus, count, seed)["text"].to_pylist()
    looked_for = np.unique(pq.read_table(runs, columns=["passage"])["passage"].to_numpy())
    drawn = np.random.default_rng(seed).permutation(looked_for)[: len(hosts)].tolist()
    rng = random.Random(seed)
    texts = [put(passages["text"][number].as_py(), host, rng) for number, host in zip(drawn, hosts, strict=False)]
    numbers = range(corpus.num_documents, corpus.num_documents + len(texts))
    return behind(corpus, texts, file), list(zip(numbers, drawn, strict=True))


def put(passage: str, host: str, rng: random.Random) -> str:
    """The host with the passage at one of its blanks."""
    blanks = [place for place, character in enumerate(host) if character.isspace()] or [len(host)]
    place = rng.choice(blanks)
    return f"{host[:place]} {passage} {host[place:]}"


def write_planted(planted: list[tuple[int, int]], found: set[tuple[int, int]], file: Path) -> None:
    """Write the canaries as Parquet, with whether each was found."""
    rows = [{"document": d, "passage": p, "found": (d, p) in found} for d, p in planted]
    pq.write_table(pa.Table.from_pylist(rows, schema=PLANTED), file)
