"""Benchmarks of corpus preparation: `make bench-corpus`, with SELFPLAY_DATA naming a folder of real
corpora.

As in tests.bench.pipeline, each compares ours with a named peer in one run, in CPU-seconds of one
thread, and appends lines to data/bench/corpus.jsonl. All split and lower-case words in the same way
and start from the same texts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import pyarrow as pa
import pyarrow.parquet as pq
import rensa
from datasketch import MinHash, MinHashLSH

from corpus_prep.dedup.minhash import MinHashing, signatures
from corpus_prep.dedup.shingles import Shingling
from tasks.corpus import dedup
from tasks.stage import stage
from tests.bench.pipeline import cpu_s, line
from tests.support.corpora import data_folder, documents, generated, passages, with_copies
from tests.support.truth import defined_shingles, exact_join, judge, word_shingles
from warehouse.schemas import DOCUMENTS
from warehouse.store import Store

BENCH = Path(__file__).parents[2] / "data" / "bench" / "corpus.jsonl"
NUM_DOCUMENTS = 50_000
NUM_COPIES = 10_000
THRESHOLD = 0.8
REPEATS = 3
DUCKDB_MB = 1024  # warehouse.query.out_of_core
# per document: its parent in a family (8), and flags: it counts, is a candidate, has an edge
BYTES_EACH = 16


def main() -> None:
    """Run all benchmarks, or those named."""
    BENCH.parent.mkdir(parents=True, exist_ok=True)
    chosen = [
        benchmark
        for benchmark in BENCHMARKS
        if benchmark.__name__ in (sys.argv[1:] or [benchmark.__name__])
    ]
    with BENCH.open("a") as file:
        for benchmark in chosen:
            for row in benchmark():
                file.write(json.dumps(row) + "\n")
                print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)


def memory(counts: tuple[int, ...] = (10_000, 100_000, 1_000_000)) -> Iterator[dict[str, Any]]:
    """Peak memory of all stages in one process over generated documents, a quarter of them edited
    copies.

    The projection adds libraries and one shard as in the band stage of the largest corpus, DuckDB
    at its limit, and the arrays with entries for every document.
    """
    fixed = 0.0
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            child = [
                sys.executable,
                "-m",
                "tests.end_to_end.kill_dedup",
                "--search",
                folder,
                "--documents",
                str(count),
            ]
            for steps in ("documents", "all"):  # a separate process generates the documents
                subprocess.run([*child, "--steps", steps], check=True)
            made = {table.address.split("/")[-1]: table.recipe for table in Store(folder).tables()}
        steps = {name: (recipe["cpu_s"], recipe["peak_memory_mb"]) for name, recipe in made.items()}
        del steps["documents"]
        fixed = steps["bands"][1]
        cpu_seconds, peaks = zip(*steps.values(), strict=True)
        costs = {"peak_mb": max(peaks), "cpu_s": round(sum(cpu_seconds), 1)}
        yield {"name": "dedup_memory", "documents": count, **costs, "steps_cpu_s_peak_mb": steps}
    for count in (4_000_000, 100_000_000):
        projected = round(fixed + DUCKDB_MB + count * BYTES_EACH / 1e6)
        yield {"name": "dedup_memory_projected", "documents": count, "peak_mb": projected}


def text_to_signature(count: int = 10_000) -> list[dict[str, Any]]:
    """Texts to signatures of 128 permutations over word 5-grams, in CPU-seconds per million
    documents."""
    texts = passages(count)
    arrow = pa.array(texts)
    scale = 1e6 / len(texts)
    ours = cpu_s(lambda: signatures(arrow, MinHashing())) * scale
    bulk = cpu_s(lambda: MinHash.bulk(encoded(texts), num_perm=128), repeats=1) * scale
    strings = cpu_s(lambda: rensa_signatures([list(word_shingles(text)) for text in texts])) * scale
    ready = [list(word_shingles(text)) for text in texts]
    from_ready = cpu_s(lambda: rensa_signatures(ready)) * scale
    unit = "CPU-s/M texts"
    return [
        line(
            "signatures_vs_datasketch_bulk", "datasketch 2.0 MinHash.bulk, sha1", ours, bulk, unit
        ),
        line(
            "signatures_vs_rensa_strings", "rensa, shingles joined in Python", ours, strings, unit
        ),
        line(
            "signatures_vs_rensa_ready_tokens",
            "rensa, shingling not counted",
            ours,
            from_ready,
            unit,
        ),
    ]


def encoded(texts: list[str]) -> list[list[bytes]]:
    return [[shingle.encode() for shingle in word_shingles(text)] for text in texts]


def rensa_signatures(shingles: list[list[str]]) -> Any:
    return rensa.RMinHash.digest_matrix_from_token_sets(shingles, 128, 1)


def whole_dedup() -> Iterator[dict[str, Any]]:
    """Texts to the set of removed documents. Each is judged by an exact join of all pairs of its
    own shingles, which differ only in what counts as a letter."""
    texts = corpus()
    deduplicate(texts)  # compiles
    ours_s, removed, pairs = min((deduplicate(texts) for _ in range(REPEATS)), key=itemgetter(0))
    truth = exact_join([defined_shingles(text) for text in texts], THRESHOLD)
    their_truth = exact_join([word_shingles(text) for text in texts], THRESHOLD)
    ours = judge(removed, truth)
    for name, peer, repeats, work in (
        (
            "datasketch_16x8",
            "datasketch MinHashLSH 16x8, bulk",
            1,
            lambda: datasketch_dedup(texts, (16, 8)),
        ),
        (
            "datasketch_default",
            "datasketch MinHashLSH, bulk",
            1,
            lambda: datasketch_dedup(texts, None),
        ),
        ("rensa", "rensa RMinHashDeduplicator", REPEATS, lambda: rensa_dedup(texts, None)),
        (
            "rensa_32x4",
            "rensa RMinHashDeduplicator, 32 bands",
            REPEATS,
            lambda: rensa_dedup(texts, 32),
        ),
    ):
        peer_s, peer_removed = min((timed(work) for _ in range(repeats)), key=itemgetter(0))
        theirs = judge(peer_removed, their_truth)
        yield line(f"dedup_vs_{name}", peer, ours_s, peer_s, f"CPU-s/{len(texts)} texts")
        yield share(
            f"dedup_removals_vs_{name}", peer, ours.recall, theirs.recall, "share of due removals"
        )
        yield share(f"dedup_wrong_removals_vs_{name}", peer, ours.wrong, theirs.wrong, "documents")
    yield {
        "name": "dedup_removals",
        "documents": len(texts),
        "removed": len(removed),
        **ours._asdict(),
    }
    join = "exact join of all pairs"
    found = len(truth.keys() & pairs) / len(truth)
    wrong = len(pairs - truth.keys())
    yield share("dedup_pair_recall", join, found, 1.0, f"share of {len(truth)} pairs")
    yield share("dedup_wrong_pairs", join, wrong, 0, f"of {len(pairs)} pairs")


def natural_duplicates() -> Iterator[dict[str, Any]]:
    """Pages of a manual in ten versions: which were merged, compared with the page that each is
    a version of."""
    folder = data_folder()
    if folder is None:
        return
    table = pq.read_table(folder / "corpora" / "neardup_react_native_docs.parquet")
    texts = table["text"].to_pylist()
    pages = [name.split("@")[0] for name in table["id"].to_pylist()]
    _, removed, pairs = deduplicate(texts)
    truth = exact_join([defined_shingles(text) for text in texts], THRESHOLD)
    kept = Counter(page for number, page in enumerate(pages) if number not in removed)
    across = {(pages[one], pages[other]) for one, other in pairs if pages[one] != pages[other]}
    yield {
        "name": "neardup_react_native_docs",
        "documents": len(texts),
        "kept": kept.total(),
        "pages": len(set(pages)),
        "pages_kept": len(kept),
        "pages_kept_once": sum(count == 1 for count in kept.values()),
        "pairs_of_one_page": sum(pages[one] == pages[other] for one, other in pairs),
        "pages_joined": sorted(across),
        "pair_recall": round(len(pairs & truth.keys()) / len(truth), 4),
        "wrong_pairs": len(pairs - truth.keys()),
    }


NOISY = {
    "5 words, 0.8 (default)": MinHashing(),
    "5 words, 0.6": MinHashing(threshold=0.6),
    "2 words, 0.8": MinHashing(shingling=Shingling(size=2)),
    "2 words, 0.6": MinHashing(threshold=0.6, shingling=Shingling(size=2)),
    "9 characters, 0.8": MinHashing(shingling=Shingling(unit="characters", size=9)),
    "9 characters, 0.6": MinHashing(threshold=0.6, shingling=Shingling(unit="characters", size=9)),
}


def noisy_text(count: int = 4_000) -> Iterator[dict[str, Any]]:
    """Copies with a share of characters misread, as by scanners: how many are matched with their
    originals, by setting; and how many of the originals alone are removed, of which a few hundred
    are true versions of others."""
    texts = short_passages(count)
    for name, settings in NOISY.items():
        row = {"name": "noisy_text", "setting": name, "documents": count}
        row["removed_of_originals"] = len(merged(texts, settings)[0])
        for errors in (0.01, 0.02, 0.05):
            rng = random.Random(errors)
            copies = [misread(text, errors, rng) for text in texts[:1000]]
            _, pairs = merged([*texts, *copies], settings)
            row[f"found_at_{errors:.0%}"] = sum((n, count + n) in pairs for n in range(1000)) / 1000
        yield row


def short_passages(count: int) -> list[str]:
    """Unchanged passages of about 70 words; generated ones without data."""
    if (folder := data_folder()) is None:
        return list(generated(count))
    texts = pq.read_table(folder / "corpora" / "wiki_passages.parquet")["text"].to_pylist()
    return random.Random(0).sample(texts, count)


def misread(text: str, errors: float, rng: random.Random) -> str:
    return "".join(
        rng.choice("abcdefghiklmnorstu") if c.isalpha() and rng.random() < errors else c
        for c in text
    )


def merged(texts: list[str], settings: MinHashing) -> tuple[set[int], set[tuple[int, int]]]:
    """Documents removed as near-duplicates, and the pairs at or above the threshold."""
    with tempfile.TemporaryDirectory() as folder:
        place = Store(folder).run("bench")
        table = given(place, texts)
        bands = dedup.band_documents(place, table, settings=settings)
        found = dedup.find_duplicates(place, table, bands, settings=settings)
        near = dedup.screen_near_duplicates(
            place, table, found, threshold=settings.threshold, label="near"
        )
        removed = {int(row["document_id"][1:]) for row in near.rows() if not row["kept"]}
        return removed, {
            (r["first"], r["second"]) for r in found.rows() if r["jaccard"] >= settings.threshold
        }


def share(name: str, peer_name: str, ours: float, peer: float, unit: str) -> dict[str, Any]:
    """A line whose numbers are not costs; the ratio is ours over the peer's."""
    ratio = round(ours / peer, 4) if peer else None
    return {
        "name": name,
        "ours": round(ours, 6),
        "peer": round(peer, 6),
        "ratio": ratio,
        "unit": unit,
        "peer_name": peer_name,
    }


@cache
def corpus() -> list[str]:
    return with_copies(passages(NUM_DOCUMENTS - NUM_COPIES), NUM_COPIES)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


@stage(DOCUMENTS)
def given(texts: list[str]) -> Any:
    for start in range(0, len(texts), 10_000):
        yield documents(texts[start : start + 10_000], start)


def deduplicate(texts: list[str]) -> tuple[float, set[int], set[tuple[int, int]]]:
    """Run the stages as a flow does, from published documents to published screenings; returns
    CPU-seconds, removed documents, and all pairs of near-duplicates, including documents of equal
    text."""
    settings = MinHashing(threshold=THRESHOLD)
    with tempfile.TemporaryDirectory() as folder:
        place = Store(folder).run("bench")
        table = given(place, texts)
        begun = time.process_time()
        exact = dedup.screen_exact_duplicates(place, table, label="exact", keep="first")
        bands = dedup.band_documents(place, table, screened=[exact], settings=settings)
        found = dedup.find_duplicates(place, table, bands, screened=[exact], settings=settings)
        near = dedup.screen_near_duplicates(
            place, table, found, screened=[exact], label="near", keep="first"
        )
        used_s = time.process_time() - begun
        dropped = [row for t in (exact, near) for row in t.rows() if not row["kept"]]
        same: dict[int, list[int]] = {}
        for row in exact.rows():
            same.setdefault(int((row["instead"] or row["document_id"])[1:]), []).append(
                int(row["document_id"][1:])
            )
        edges = [(r["first"], r["second"]) for r in found.rows() if r["jaccard"] >= THRESHOLD]
    pairs = {(a, b) for group in same.values() for a in group for b in group if a < b}
    pairs |= {
        (min(a, b), max(a, b)) for one, other in edges for a in same[one] for b in same[other]
    }
    return used_s, {int(row["document_id"][1:]) for row in dropped}, pairs


def datasketch_dedup(texts: list[str], params: tuple[int, int] | None) -> set[int]:
    """As in its documentation: a document that matches one in the index is removed; any other is
    added to the index."""
    index = MinHashLSH(threshold=THRESHOLD, num_perm=128, params=params)
    removed = set()
    for number, signature in enumerate(MinHash.bulk(encoded(texts), num_perm=128)):
        if index.query(signature):
            removed.add(number)
        else:
            index.insert(number, signature)
    return removed


def rensa_dedup(texts: list[str], num_bands: int | None) -> set[int]:
    """rensa's deduplicator with LSH, which checks the estimated similarity."""
    index = rensa.RMinHashDeduplicator(
        threshold=THRESHOLD, num_perm=128, use_lsh=True, num_bands=num_bands
    )
    kept = index.add_pairs(
        (str(number), list(word_shingles(text))) for number, text in enumerate(texts)
    )
    return {number for number, keep in enumerate(kept) if not keep}


BENCHMARKS = (text_to_signature, whole_dedup, natural_duplicates, noisy_text, memory)

if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
