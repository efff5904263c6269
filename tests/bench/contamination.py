"""What decontamination finds, by class of edit: passages of real evaluation sets planted in real
documents. Part of `make bench-corpus`.

`SELFPLAY_DATA=... python -m tests.bench.contamination`: one line per class, and one for clean
documents and CPU-seconds. The host documents are pieces of PEPs and books; each holds one passage.
There are two measurements. In the first, passages are those of the evaluation sets; the rules'
numbers were chosen by it. In the second (`unseen`), contexts are passages of Wikipedia, and clean
documents are other passages and articles from there. No rule's numbers were chosen by the second,
except that those about parts of contexts and about edited questions were chosen by both.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from corpus_prep.contamination.benchmarks import Benchmark
from corpus_prep.contamination.ngrams import NgramRule
from tasks.corpus import decontaminate
from tests.bench.retrieval import CONTAMINATED, all_documents, evaluation_sets, stored
from tests.support.corpora import data_folder, documents
from warehouse.schemas.corpus import DOCUMENTS
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


def any_sentence(text: str, rng: random.Random, vocabulary: list[str]) -> str:
    """Any sentence of at least 8 words; the longest if there is none."""
    sentences = text.replace("\n", " ").split(". ")
    return rng.choice([s for s in sentences if len(s.split()) >= 8] or [max(sentences, key=len)])


Class = tuple[str, str, int, int, Edit]  # name, kind of passage, fewest and most words, the edit
CLASSES: list[Class] = [
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
UNSEEN = "unseen"
CONTEXTS = "2wiki-"  # prefix of the passages of Wikipedia that are contexts, ...
CLEAN = ("nqgold-", "qed-")  # ... and of those that are clean documents
QUESTIONS = ("hotpotqa", "2wikimultihopqa", "musique", "triviaqa", "nq_open", "bamboogle", "gsm8k")
UNSEEN_CLASSES: list[Class] = [
    ("context, verbatim", "context", 26, 10**6, verbatim),
    ("context, 10 % of words changed", "context", 26, 10**6, changed(0.1)),
    ("context, 20 % of words changed", "context", 26, 10**6, changed(0.2)),
    ("context, first half", "context", 26, 10**6, half),
    ("context, its longest sentence", "context", 26, 10**6, sentence),
    ("context, any sentence of 8 words or more", "context", 26, 10**6, any_sentence),
    ("question of 20 words or more, 10 % of words changed", "question", 20, 10**6, changed(0.1)),
    ("question of 13 to 19 words, 10 % of words changed", "question", 13, 19, changed(0.1)),
    ("question of 8 to 12 words, one changed", "question", 8, 12, changed(0.1)),
]


def main() -> None:
    if data_folder() is None:
        sys.exit("name a folder of corpora and evaluation sets: SELFPLAY_DATA")
    with tempfile.TemporaryDirectory() as folder, BENCH.open("a") as file:
        store = Store(folder)
        for rows in (seen(store.run("seen"), Path(folder)), unseen(store.run("unseen"))):
            for row in rows:
                file.write(json.dumps(row) + "\n")
                print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def seen(place: Place, folder: Path) -> Iterator[dict[str, Any]]:
    """The passages of the evaluation sets, in all corpora but those made of their contexts."""
    passages = decontaminate.read_evaluation_sets(place, evaluation_sets(folder), identity="")
    clean = {
        row["document_id"]
        for row in all_documents(place).rows()
        if not row["document_id"].startswith(CONTAMINATED)
    }
    yield from by_class(place, passages, list(batches(place, clean)), CLASSES, "")


def unseen(place: Place) -> Iterator[dict[str, Any]]:
    """Passages of Wikipedia as the contexts of an evaluation set, in other passages of it."""
    folder = data_folder()
    assert folder is not None
    wiki = pq.read_table(folder / "corpora" / "wiki_passages.parquet").to_pylist()
    articles = pq.read_table(folder / "corpora" / "wiki_long_articles.parquet").to_pylist()
    file = place.store.root / "wiki.jsonl"
    contexts = (row["text"] for row in wiki if row["id"].startswith(CONTEXTS))
    file.write_text("".join(json.dumps({"context": text}) + "\n" for text in contexts))
    sets = [Benchmark(name=UNSEEN, path=str(file))]
    sets += [Benchmark(name=n, path=str(folder / "benchmarks" / n)) for n in QUESTIONS]
    passages = decontaminate.read_evaluation_sets(place, sets, identity="")
    own = [row for row in wiki if row["id"].startswith(CLEAN)] + articles
    clean = documents([row["text"] for row in own])
    ids = pa.array([row["id"] for row in own])
    clean = clean.set_column(0, DOCUMENTS.arrow.field("document_id"), ids)
    yield from by_class(place, passages, [clean], UNSEEN_CLASSES, f"{UNSEEN}, ")


def by_class(
    place: Place, passages: Table, clean: list[pa.Table], classes: Sequence[Class], prefix: str
) -> Iterator[dict[str, Any]]:
    table = stored(
        place, [*clean, documents(planted(passages, classes, bool(prefix)))], label="planted"
    )
    found = decontaminate.find_contaminations(
        place, table, passages, rule=NgramRule(), alignment=True
    )
    screening = decontaminate.screen_contaminated(place, table, found)
    dropped = {row["document_id"] for row in screening.rows() if not row["kept"]}
    for number, (name, *_) in enumerate(classes):
        own = [f"d{NUM * number + n}" for n in range(NUM)]
        yield {
            "name": "contamination_found",
            "class": f"{prefix}{name}",
            "of": NUM,
            "found": sum(d in dropped for d in own),
        }
    ids = {name for part in clean for name in part["document_id"].to_pylist()}
    wrong = sorted(dropped & ids)
    cpu_s = round(found.recipe["cpu_s"] + screening.recipe["cpu_s"], 1)
    yield {
        "name": "contamination_clean",
        "class": f"{prefix}clean",
        "documents": len(ids),
        "dropped": len(wrong),
        "cpu_s": cpu_s,
        "which": wrong,
    }


def batches(place: Place, clean: set[str]) -> Iterator[pa.Table]:
    for batch in all_documents(place).batches():
        yield pa.Table.from_batches([batch]).filter(
            pa.array([i in clean for i in batch["document_id"].to_pylist()])
        )


def planted(passages: Table, classes: Sequence[Class], is_unseen: bool) -> list[str]:
    """One document per class and number, in the order of `classes`. Contexts are those of the
    evaluation set `UNSEEN`, if `is_unseen`, and then no host is an article of Wikipedia."""
    folder, rng = data_folder(), random.Random(int(is_unseen))
    assert folder is not None
    hosts, vocabulary = [], []
    names = ["technical_peps", "books_gutenberg"]
    if not is_unseen:
        names.append("wiki_long_articles")
    for name in names:
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
    for _, kind, least, most, edit in classes:
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
