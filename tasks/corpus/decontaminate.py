"""Remove evaluation sets from a corpus: drop documents that contain passages of them or are
near-duplicates.

passages = read_evaluation_sets(place, benchmarks, identity=evaluation_identity(benchmarks))
found    = find_contaminations(place, documents, passages, screened=[exact, near], rule=NgramRule())
clean    = screen_contaminated(place, documents, found, screened=[exact, near], label="clean")
measure_contaminations(place, passages, found, clean, label="contaminations")
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from corpus_prep.contamination.alike import find_alike
from corpus_prep.contamination.benchmarks import Benchmark, read_passages
from corpus_prep.contamination.ngrams import (
    NgramRule,
    find_passages,
    screen_contaminated_documents,
    write_runs,
)
from corpus_prep.contamination.planted import plant_passages, planted_recall, write_planted
from corpus_prep.dedup.bands import write_bands
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.workers import Workers, map_shards
from tasks.corpus.documents import corpus_identity
from tasks.corpus.steps import corpus_of, costs, folder_of, measured, screened_counts
from tasks.stage import Rows, Tables, as_tables, stage
from warehouse.draft import Draft, Shards
from warehouse.schemas import CONTAMINATIONS, MEASUREMENTS, PASSAGES, SCREENINGS, Item, Measurement
from warehouse.store import Table

CANARIES = "canaries.parquet"
RUNS = "runs.parquet"


@stage(PASSAGES)
def read_evaluation_sets(
    benchmarks: Sequence[Benchmark], items: Tables = (), *, identity: str
) -> Rows:
    """Yield every text of the evaluation sets, from files and from tables of items, each labelled
    with its benchmark. `identity` is `evaluation_identity(benchmarks)`."""
    for benchmark in benchmarks:
        yield from read_passages(benchmark)
    for table in as_tables(items):
        rows = table.rows(Item)
        times_asked = Counter(row["text"] for row in rows)
        for row in rows:
            is_stock = bool(row["options"]) and times_asked[row["text"]] > 1
            yield from passages_of_item(table.at.label or "", row, is_stock)


def passages_of_item(benchmark: str, item: Item, is_stock: bool) -> Iterator[dict[str, str]]:
    """Yield the passages of an item: its question, its context and its answers; for multiple
    choice, the question with and without its options.

    A stock question, such as "Which of these is true?", is not a passage without its options.
    """
    options = item["options"] or []
    passages = [
        ("question", "" if is_stock else item["text"]),
        ("question", " ".join([item["text"], *options])),
        ("context", item["context"] or ""),
    ]
    if not options:
        passages += [("answer", text) for text in item["references"]]
    texts = dict.fromkeys((kind, text) for kind, text in passages if text.strip())
    for position, (kind, text) in enumerate(texts):
        yield {
            "benchmark": benchmark,
            "passage": f"{item['task_id']}#{position}",
            "kind": kind,
            "text": text,
        }


def evaluation_identity(benchmarks: Sequence[Benchmark]) -> str:
    """An identity that changes if the files of the evaluation sets change."""
    return " ".join(corpus_identity(benchmark.path) for benchmark in benchmarks)


@stage(CONTAMINATIONS, tools=("workers",))
def find_contaminations(  # noqa: PLR0913 - all that the rows depend on, and the tools
    documents: Table,
    passages: Table,
    *,
    screened: Sequence[Table] = (),
    rule: NgramRule,
    alignment: bool = False,
    likeness: MinHashing | None = None,
    canaries: int = 0,
    seed: int = 0,
    workers: Workers | None = None,
    shards: Shards,
    draft: Draft,
) -> Rows:
    """Yield every passage that a document contains, found by n-grams, with the spans. With
    `alignment`, also passages that it contains edited or in part; with `likeness`, also passages of
    which it is a near-duplicate.

    With `canaries`, that many passages are planted in copies of documents, some edited or in part,
    and searched for. They are not among the rows but in the file `canaries.parquet` beside them.
    """
    corpus = corpus_of(documents, screened)
    folder = folder_of(shards)
    texts = passages.arrow
    runs = draft.files / RUNS
    searched = corpus
    planted = []
    write_runs(texts, rule, runs)
    if canaries:
        searched, planted = plant_passages(
            corpus, texts, rule, alignment, canaries, seed, folder / CANARIES
        )
    with find_passages(
        searched, corpus, texts, runs, rule, alignment, folder, workers
    ) as contaminations:
        yield from contaminations.rows()
        if canaries:
            write_planted(planted, contaminations.beyond(), draft.files / CANARIES)
    if likeness is not None:
        bands = map_shards(write_bands, corpus.shards(folder, "bands"), likeness, workers)
        yield from find_alike(corpus, texts, bands, likeness, folder)


@stage(SCREENINGS)
def screen_contaminated(
    documents: Table, contaminations: Table, *, screened: Sequence[Table] = (), shards: Shards
) -> Rows:
    """Yield a screening of every document that no earlier one dropped: a document that contains a
    passage, or a large enough part of one, is dropped."""
    corpus = corpus_of(documents, screened)
    yield from screen_contaminated_documents(corpus, contaminations.paths(), folder_of(shards))


@stage(MEASUREMENTS)
def measure_contaminations(
    passages: Table, contaminations: Table, screening: Table
) -> Iterator[Measurement]:
    """Yield what decontamination did and cost, and how many canaries were found."""
    yield from measured("contaminations", costs(contaminations))
    yield from measured("decontamination", costs(screening))
    yield from measured("decontamination", screened_counts(screening))
    looked_for = len(
        pq.read_table(contaminations.files / RUNS, columns=["passage"])["passage"].unique()
    )
    yield from measured(
        "contaminations", {"passages": passages.num_rows, "passages_looked_for": looked_for}.items()
    )
    if (contaminations.files / CANARIES).exists():
        yield from measured("contaminations", planted_recall(contaminations.files / CANARIES))
