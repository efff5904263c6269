"""Canaries of decontamination: passages planted in documents to measure the recall of the search.

The kinds take turns: `verbatim`; `edited`, with a tenth of the words replaced; `half`, the first
half of a context; `short`, a question of few words on its own line. A kind without passages is left
out.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.contamination.ngrams import ALONE_WORDS, NgramRule
from corpus_prep.contamination.words import count_words
from corpus_prep.corpus import Corpus
from corpus_prep.dedup.canaries import behind, sample
from corpus_prep.scripts import split_words

PLANTED = pa.schema(
    [
        ("document", pa.int64()),
        ("passage", pa.int64()),
        ("kind", pa.string()),
        ("found", pa.bool_()),
    ]
)
VERBATIM = "verbatim"
EDITED = "edited"
HALF = "half"
SHORT = "short"
HALVED_WORDS = 60  # shorter contexts are not halved


@dataclass(frozen=True)
class Canary:
    """Document and passage by number, and the kind of canary."""

    document: int
    passage: int
    kind: str


def plant_passages(
    corpus: Corpus,
    passages: pa.Table,
    rule: NgramRule,
    edited: bool,
    count: int,
    seed: int,
    file: Path,
) -> tuple[Corpus, list[Canary]]:
    """The corpus with up to `count` more documents, and the canaries.

    The documents, written to `file`, are copies of the corpus's own, each with a passage planted
    between two words. edited: whether edited and partial passages are planted, too.
    """
    hosts = sample(corpus, count, seed)["text"].to_pylist()
    rng = random.Random(seed)
    texts = passages["text"].to_pylist()
    canaries = []
    of_kind = {kind: numbers for kind, numbers in _kinds(passages, rule, edited).items() if numbers}
    vocabulary = [word for host in hosts for word in split_words(host)]
    planted = []
    kinds = list(of_kind)
    for number, host in enumerate(hosts if kinds else []):
        kind = kinds[number % len(kinds)]
        passage = rng.choice(of_kind[kind])
        planted.append(
            put(_changed(texts[passage], kind, vocabulary, rng), host, rng, alone=kind == SHORT)
        )
        canaries.append(Canary(corpus.num_documents + number, passage, kind))
    return behind(corpus, planted, file), canaries


def _kinds(passages: pa.Table, rule: NgramRule, edited: bool) -> dict[str, list[int]]:
    """The passages that can be planted as each kind."""
    numbers: dict[str, list[int]] = {VERBATIM: [], SHORT: []}
    if edited:
        numbers |= {EDITED: [], HALF: []}
    fewest = {"context": rule.ngram, "question": ALONE_WORDS + 1}
    lengths = count_words(passages["text"]).tolist()
    for number, (kind, length) in enumerate(
        zip(passages["kind"].to_pylist(), lengths, strict=True)
    ):
        if kind == "question" and rule.min_words <= length <= ALONE_WORDS:
            numbers[SHORT].append(number)
        elif kind in fewest and length >= fewest[kind]:
            numbers[VERBATIM].append(number)
            if edited:
                numbers[EDITED].append(number)
            if edited and kind == "context" and length >= HALVED_WORDS:
                numbers[HALF].append(number)
    return numbers


def _changed(text: str, kind: str, vocabulary: list[str], rng: random.Random) -> str:
    """A passage as a canary of this kind."""
    words = split_words(text)
    if kind == HALF:
        return "".join(words[: len(words) // 2]).strip()
    if kind == EDITED:
        for at in rng.sample(range(len(words)), max(len(words) // 10, 1)):
            words[at] = rng.choice(vocabulary)
        return "".join(words).strip()
    return text


def put(passage: str, host: str, rng: random.Random, alone: bool = False) -> str:
    """The host with the passage inserted at one of its blanks, or at its end if it has none.

    `rng` draws the blank. With `alone` the passage is on its own line.
    """
    blanks = [place for place, character in enumerate(host) if character.isspace()] or [len(host)]
    place = rng.choice(blanks)
    around = "\n" if alone else " "
    return f"{host[:place]}{around}{passage}{around}{host[place:]}"


def write_planted(planted: list[Canary], detected: set[tuple[int, int]], file: Path) -> None:
    """Write the canaries as Parquet, each with whether its (document, passage) is among
    `detected`."""
    rows = [
        {
            "document": c.document,
            "passage": c.passage,
            "kind": c.kind,
            "found": (c.document, c.passage) in detected,
        }
        for c in planted
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=PLANTED), file)


def planted_recall(file: Path) -> Iterator[tuple[str, float]]:
    """For all canaries and for each kind: their number, and the share that was found."""
    rows = pq.read_table(file, schema=PLANTED).to_pylist()
    planted = Counter(kind for row in rows for kind in ("", row["kind"]))
    num_detected = Counter(kind for row in rows if row["found"] for kind in ("", row["kind"]))
    for kind, number in sorted(planted.items()):
        yield f"canaries: {kind}".removesuffix(": "), number
        yield f"canary_recall: {kind}".removesuffix(": "), num_detected[kind] / number
