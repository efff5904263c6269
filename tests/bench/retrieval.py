"""Benchmarks of decontamination, clusters and retrieval: `make bench-corpus`, with SELFPLAY_DATA
naming real data.

As in tests.bench.pipeline, each compares ours with a named peer in one run, in CPU-seconds of one
thread, and appends lines to data/bench/corpus.jsonl. Vectors come from latent semantic analysis, so
no model has to be downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from corpus_prep.clusters.kmeans import Clustering, cluster
from corpus_prep.contamination.benchmarks import Benchmark
from corpus_prep.contamination.ngrams import Finder, NgramRule, passage_runs
from corpus_prep.dedup.minhash import MinHashing
from corpus_prep.search.settings import VectorSearch
from corpus_prep.search.vectors import VECTORS, VectorRanker, write_search
from tasks.corpus import decontaminate
from tasks.stage import stage
from tests.bench.pipeline import cpu_s, line
from tests.support.corpora import CORPORA, data_folder, documents, generated, passages
from warehouse.schemas.corpus import DOCUMENTS
from warehouse.store import Place, Store

BENCH = Path(__file__).parents[2] / "data" / "bench" / "corpus.jsonl"
NUM_PASSAGES = 100_000
DIMENSIONS = 128
NUM_QUERIES = 256
K = 3
NUM_CANARIES = 300
CONTAMINATED = "tatqa-"  # prefix of documents made of an evaluation set's own contexts

Line = dict[str, Any]


def main() -> None:
    """Run all benchmarks, or those named."""
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    BENCH.parent.mkdir(parents=True, exist_ok=True)
    with BENCH.open("a") as file:
        for benchmark in BENCHMARKS:
            if benchmark.__name__ in (sys.argv[1:] or [benchmark.__name__]):
                for row in benchmark():
                    file.write(json.dumps(row) + "\n")
                    print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def clusters() -> Iterator[Line]:
    """Vectors to clusters of 20, against flat k-means with as many clusters, by faiss and
    scikit-learn (mini-batches)."""
    from sklearn.cluster import MiniBatchKMeans

    vectors, _ = lsa()
    found = []
    ours = cpu_s(lambda: found.append(cluster(vectors, Clustering())), repeats=1)
    count = len(found[-1].cell)
    yield of_clusters("two-level k-means within bounds", vectors, found[-1].cluster, ours)
    flat: Any = faiss.Kmeans(
        vectors.shape[1], count, niter=10, seed=0, spherical=True, min_points_per_centroid=1
    )
    theirs = once(lambda: flat.train(vectors))
    yield of_clusters("faiss.Kmeans", vectors, flat.index.search(vectors, 1)[1][:, 0], theirs)
    yield line("clusters_vs_faiss_flat", "faiss.Kmeans, 10 iterations", ours, theirs, "CPU-s")
    batches = MiniBatchKMeans(count, random_state=0, n_init=1, batch_size=4096)
    theirs = once(lambda: batches.fit(vectors))
    yield of_clusters("MiniBatchKMeans", vectors, batches.labels_, theirs)
    yield line(
        "clusters_vs_minibatch_kmeans", "sklearn.cluster.MiniBatchKMeans", ours, theirs, "CPU-s"
    )


def of_clusters(name: str, vectors: np.ndarray, own: np.ndarray, seconds: float) -> Line:
    """How well clusters keep to 10..40 documents, and how near documents are to their cluster's
    mean."""
    sizes = np.bincount(own)
    smallest, largest = Clustering().bounds
    fits = (sizes >= smallest) & (sizes <= largest)
    totals = np.zeros((len(sizes), vectors.shape[1]))
    np.add.at(totals, own, vectors)
    return {
        "name": "clusters",
        "method": name,
        "documents": len(own),
        "clusters": int((sizes > 0).sum()),
        "cpu_s": round(seconds, 2),
        "clusters_within": round(float(fits[sizes > 0].mean()), 4),
        "documents_within": round(float(fits[own].mean()), 4),
        "mean_similarity": round(float(np.linalg.norm(totals, axis=1).sum() / len(own)), 4),
    }


def retrieval() -> Iterator[Line]:
    """The three best documents for each of 256 queries at once, against faiss's exact index over
    the same vectors."""
    vectors, queries = lsa()
    peer: Any = faiss.IndexFlatIP(vectors.shape[1])
    peer.add(vectors)
    expected = peer.search(queries, K)[1]
    theirs = cpu_s(lambda: peer.search(queries, K))
    for kind in ("exact", "ivf_sq8", "ivf_pq"):
        with tempfile.TemporaryDirectory() as folder:
            np.save(Path(folder) / VECTORS, vectors)
            built: list[VectorSearch] = []
            built_s = once(lambda: built.append(write(Path(folder), kind)))  # noqa: B023
            ranker = VectorRanker(Path(folder), Given(), built[0])  # type: ignore[arg-type]
            rows = [[row for row, _ in found] for found in ranker.rank_vectors(queries, K)]
            recall = np.mean(
                [len(set(r) & set(e)) / K for r, e in zip(rows, expected.tolist(), strict=True)]
            )
            ours = cpu_s(lambda: ranker.rank_vectors(queries, K))  # noqa: B023
            size = sum(f.stat().st_size for f in Path(folder).iterdir() if f.name != VECTORS)
        found = line(
            f"retrieval_{kind}_vs_faiss_flat",
            "faiss.IndexFlatIP",
            ours,
            theirs,
            f"CPU-s/{NUM_QUERIES} queries",
        )
        more = {
            "recall_at_3": round(float(recall), 4),
            "documents": len(vectors),
            "dimensions": vectors.shape[1],
        }
        yield {**found, **more, "index_mb": round(size / 1e6, 1), "built_cpu_s": round(built_s, 2)}


class Given:
    """In place of the embedding model: queries are already vectors."""

    device = "cpu"
    dtype = torch.float32


def write(folder: Path, kind: str) -> VectorSearch:
    return write_search(folder / VECTORS, VectorSearch(kind=kind, pq_bytes=DIMENSIONS // 2), folder)  # type: ignore[arg-type]


def decontamination() -> Iterator[Line]:
    """300 passages of evaluation sets planted in documents: how many n-grams and MinHash find, and
    how many clean documents are dropped by our rule and by the rule that one shared run of 13 words
    is enough."""
    with tempfile.TemporaryDirectory() as folder:
        place = Store(folder).run("bench")
        table = all_documents(place)
        sets = evaluation_sets(Path(folder))
        passages_ = decontaminate.read_evaluation_sets(place, sets, identity="")
        found = decontaminate.find_contaminations(
            place,
            table,
            passages_,
            rule=NgramRule(),
            alignment=True,
            likeness=MinHashing(),
            canaries=NUM_CANARIES,
        )
        screening = decontaminate.screen_contaminated(place, table, found)
        measured = decontaminate.measure_contaminations(place, passages_, found, screening).rows()
        values = {
            row["metric"]: row["value"] for row in measured if row["part"] == "contaminations"
        }
        clean = {
            row["document_id"]
            for row in table.rows()
            if not row["document_id"].startswith(CONTAMINATED)
        }
        dropped = {row["document_id"] for row in screening.rows() if not row["kept"]}
        alike = {row["document_id"] for row in found.rows() if row["rule"] == "minhash"}
        one_run = sharing_a_run(table, passages_.arrow)
        num_bytes = sum(len(r["text"]) for r in table.rows())
        yield {
            "name": "decontamination",
            "documents": table.num_rows,
            "mb": round(num_bytes / 1e6, 1),
            "passages_looked_for": int(values["passages_looked_for"]),
            "canaries": int(values["canaries"]),
            "canaries_found": round(values["canary_recall"], 4),
            "contaminated": table.num_rows - len(clean),
            "contaminated_dropped": len(dropped - clean),
            "contaminated_dropped_by_minhash": len(alike - clean),
            "clean": len(clean),
            "clean_dropped": len(dropped & clean),
            "clean_dropped_share": round(len(dropped & clean) / len(clean), 5),
            "clean_sharing_a_run": len(one_run & clean),
            "cpu_s": round(values["cpu_s"], 1),
            "peak_memory_mb": values["peak_memory_mb"],
        }


def runs_of_words() -> Iterator[Line]:
    """Search documents for the runs of all passages, against sets of word tuples in Python."""
    texts = passages(20_000)
    with tempfile.TemporaryDirectory() as folder:
        place = Store(folder).run("bench")
        sets = decontaminate.read_evaluation_sets(
            place, evaluation_sets(Path(folder)), identity=""
        ).arrow
    finder = Finder(passage_runs(sets, NgramRule(min_words=13)))
    arrow = pa.array(texts)
    numbers = np.arange(len(texts))
    ours = cpu_s(lambda: [None for _ in finder.hits(numbers, arrow)], repeats=1)
    wanted = {run for text in sets["text"].to_pylist() for run in plain_runs(text)}
    theirs = once(lambda: [not wanted.isdisjoint(plain_runs(text)) for text in texts])
    scale = 1e6 / len(texts)
    yield line(
        "runs_vs_python_sets",
        "Python sets of 13 words",
        ours * scale,
        theirs * scale,
        "CPU-s/M documents",
    )


def plain_runs(text: str, size: int = 13) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return zip(*(words[n:] for n in range(size)), strict=False)


def sharing_a_run(table: Any, found: pa.Table) -> set[str]:
    """Documents that hold any run of 13 words of any passage."""
    finder = Finder(passage_runs(found, NgramRule(min_words=13)))
    sharing = set()
    ids = table.arrow["document_id"].to_pylist()
    for batch in finder.hits(np.arange(len(ids)), table.arrow["text"].combine_chunks()):
        sharing |= {ids[number] for number in np.unique(batch["document"].to_numpy())}
    return sharing


@stage(DOCUMENTS, tools=("rows",))
def stored(rows: list[pa.Table]) -> Iterator[pa.Table]:
    yield from rows


def all_documents(place: Place) -> Any:
    """Whole documents of all corpora; generated ones without data."""
    folder = data_folder()
    if folder is None:
        return stored(place, [documents(list(generated(10_000)))])
    found = []
    for name in (*CORPORA, "neardup_react_native_docs"):
        corpus = pq.read_table(folder / "corpora" / f"{name}.parquet")
        own = documents(corpus["text"].to_pylist())
        found.append(
            own.set_column(0, DOCUMENTS.arrow.field("document_id"), corpus["id"].combine_chunks())
        )
    return stored(place, found)


def evaluation_sets(scratch: Path) -> list[Benchmark]:
    folder = data_folder()
    if folder is not None:
        return [
            Benchmark(name=path.name, path=str(path))
            for path in sorted((folder / "benchmarks").iterdir())
        ]
    rows = [json.dumps({"question": text}) for text in generated(2_000, seed=1, words=(8, 60))]
    (scratch / "quiz.jsonl").write_text("\n".join(rows))
    return [Benchmark(name="quiz", path=str(scratch / "quiz.jsonl"))]


@cache
def lsa() -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of passages and, as queries, of 12-word pieces of some of them."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = passages(NUM_PASSAGES)
    rng = random.Random(0)
    terms = TfidfVectorizer(max_features=30_000, sublinear_tf=True, stop_words="english")
    reduce = TruncatedSVD(DIMENSIONS, n_iter=2, random_state=0)
    vectors = unit(reduce.fit_transform(terms.fit_transform(texts)))
    pieces = [rng.choice(texts).split(" ") for _ in range(NUM_QUERIES)]
    asked = [
        " ".join(words[(at := rng.randrange(max(len(words) - 12, 1))) : at + 12])
        for words in pieces
    ]
    return vectors, unit(reduce.transform(terms.transform(asked)))


def unit(vectors: np.ndarray) -> np.ndarray:
    # gives a direction even to a text without known words
    vectors = vectors.astype(np.float32) + 1e-6
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def once(work: Any) -> float:
    """CPU-seconds of one run."""
    began = os.times()
    work()
    ended = os.times()
    return ended.user + ended.system - began.user - began.system


BENCHMARKS = (decontamination, runs_of_words, clusters, retrieval)

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
