"""What decontamination finds, by class of edit: passages of real evaluation sets planted in real
documents.

`SELFPLAY_DATA=... python -m tests.bench.contamination`: one line per class, and one for clean
documents and CPU-seconds. The host documents are pieces of PEPs and books, cleaned of all that the
evaluation sets hold; each holds one passage.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.contamination.aligned import AlignmentRule
from corpus_prep.contamination.ngrams import NgramRule
from tasks.corpus import decontaminate
from tests.bench.retrieval import CONTAMINATED, all_documents, evaluation_sets, stored
from tests.support.corpora import data_folder, documents
from warehouse.store import Place, Store, Table

BENCH = Path(__file__).parents[2] / "data" / "bench" / "contamination.jsonl"
NUM, HOST_WORDS = 200, 150
Edit = Callable[[str, random.Random, list[str]], str]


def verbatim(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    return text


def messed(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    """Change case, punctuation and white space."""
    words = (word.upper() if rng.random() < 0.5 else word.title() for word in text.split())
    return "".join(
        word.strip(".,;:?!()") + rng.choice([" ", "  ", "\n", ", ", " - "]) for word in words
    )


def changed(share: float) -> Edit:
    """Replace a share of the words, at least one."""

    def change(text: str, rng: random.Random, vocabulary: list[str]) -> str:
        words = text.split()
        for at in rng.sample(range(len(words)), max(round(share * len(words)), 1)):
            words[at] = rng.choice(vocabulary)
        return " ".join(words)

    return change


def edited(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    """Replace, remove, insert, or swap with their neighbour, a tenth of the words."""
    words = text.split()
    for _ in range(max(round(0.1 * len(words)), 1)):
        at, kind = rng.randrange(1, len(words)), rng.choice(("replace", "remove", "insert", "swap"))
        if kind == "swap":
            words[at - 1], words[at] = words[at], words[at - 1]
        else:
            words[at : at + (kind != "insert")] = (
                [] if kind == "remove" else [rng.choice(vocabulary)]
            )
    return " ".join(words)


def half(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2])


def sentence(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    """The longest sentence of the text."""
    return max(text.replace("\n", " ").split(". "), key=len)


CLASSES: list[tuple[str, str, int, int, Edit]] = [
    ("context, verbatim", "context", 40, 10**6, verbatim),
    ("context, case and punctuation", "context", 40, 10**6, messed),
    ("context, 10 % of words changed", "context", 40, 10**6, changed(0.1)),
    ("context, 10 % edited", "context", 40, 10**6, edited),
    ("context, 20 % of words changed", "context", 40, 10**6, changed(0.2)),
    ("context, first half", "context", 40, 10**6, half),
    ("context, one sentence", "context", 40, 10**6, sentence),
    ("question of 20 words or more, verbatim", "question", 20, 10**6, verbatim),
    ("question of 20 words or more, case and punctuation", "question", 20, 10**6, messed),
    ("question of 20 words or more, 10 % of words changed", "question", 20, 10**6, changed(0.1)),
    ("question of 13 to 19 words, verbatim", "question", 13, 19, verbatim),
    ("question of 13 to 19 words, 10 % of words changed", "question", 13, 19, changed(0.1)),
    ("question of 8 to 12 words, verbatim", "question", 8, 12, verbatim),
    ("question of 8 to 12 words, case and punctuation", "question", 8, 12, messed),
    ("question of 8 to 12 words, one changed", "question", 8, 12, changed(0.1)),
    ("question of 5 to 7 words, verbatim", "question", 5, 7, verbatim),
    ("question of 5 to 7 words, case and punctuation", "question", 5, 7, messed),
]


def main() -> None:
    if data_folder() is None:
        sys.exit("name a folder of corpora and evaluation sets: SELFPLAY_DATA")
    with tempfile.TemporaryDirectory() as folder, BENCH.open("a") as file:
        for row in by_class(Store(folder).run("bench"), Path(folder)):
            file.write(json.dumps(row) + "\n")
            print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def by_class(place: Place, folder: Path) -> Iterator[dict[str, Any]]:
    passages = decontaminate.read_evaluation_sets(place, evaluation_sets(folder), identity="")
    clean = {
        row["document_id"]
        for row in all_documents(place).rows()
        if not row["document_id"].startswith(CONTAMINATED)
    }
    table = stored(
        place, [*batches(place, clean), documents(planted(place, passages))], label="planted"
    )
    found = decontaminate.find_contaminations(
        place, table, passages, rule=NgramRule(), alignment=AlignmentRule()
    )
    screening = decontaminate.screen_contaminated(place, table, found)
    dropped = {row["document_id"] for row in screening.rows() if not row["kept"]}
    for number, (name, *_) in enumerate(CLASSES):
        own = [f"d{NUM * number + n}" for n in range(NUM)]
        yield {
            "name": "contamination_found",
            "class": name,
            "of": NUM,
            "found": sum(d in dropped for d in own),
        }
    wrong = sorted(dropped & clean)
    cpu_s = round(found.recipe["cpu_s"] + screening.recipe["cpu_s"], 1)
    yield {
        "name": "contamination_clean",
        "documents": len(clean),
        "dropped": len(wrong),
        "cpu_s": cpu_s,
        "which": wrong,
    }


def batches(place: Place, clean: set[str]) -> Iterator[pa.Table]:
    for batch in all_documents(place).batches():
        yield pa.Table.from_batches([batch]).filter(
            pa.array([i in clean for i in batch["document_id"].to_pylist()])
        )


def planted(place: Place, passages: Table) -> list[str]:
    """One document per class and number, in the order of CLASSES."""
    folder, rng = data_folder(), random.Random(0)
    assert folder is not None
    hosts, vocabulary = [], []
    for name in ("technical_peps", "books_gutenberg", "wiki_long_articles"):
        for text in pq.read_table(folder / "corpora" / f"{name}.parquet")["text"].to_pylist():
            words = text.split(" ")
            vocabulary += words[::50]
            hosts += [
                " ".join(words[at : at + HOST_WORDS])
                for at in range(0, len(words) - HOST_WORDS, HOST_WORDS)
            ]
    rng.shuffle(hosts)
    rows = [row for row in passages.rows() if row["kind"] != "answer"]
    texts = []
    for _, kind, least, most, edit in CLASSES:
        chosen = [
            row["text"]
            for row in rows
            if row["kind"] == kind and least <= len(row["text"].split()) <= most
        ]
        for text in rng.sample(chosen, NUM):
            before, after = hosts.pop(), hosts.pop()
            texts.append(f"{before}\n{edit(text, rng, vocabulary)}\n{after}")
    return texts


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
