"""Benchmarks: `make bench`. Each compares ours with a named peer, timed in the same run in
CPU-seconds of one thread.

Prints a table and appends JSON lines (name, ours, peer, ratio, unit) to data/bench/bench.jsonl. A
ratio above 1 is in our favour.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["ACCELERATE_USE_CPU"] = "true"
sys.modules.setdefault("vllm", None)  # type: ignore[arg-type]  # TRL would import it

import numpy as np  # noqa: E402
import psutil  # noqa: E402

from flows.runtime.store_root import SOURCE  # noqa: E402

BENCH = SOURCE / "data" / "bench" / "bench.jsonl"
MODEL = SOURCE / "data" / "micro" / "base"


def cpu_s(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least CPU time of several runs, after a warm-up run."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def line(name: str, peer_name: str, ours: float, peer: float, unit: str) -> dict[str, Any]:
    """A line of two costs; the ratio says how many times cheaper ours is."""
    return {
        "name": name,
        "ours": round(ours, 6),
        "peer": round(peer, 6),
        "ratio": round(peer / ours, 2),
        "unit": unit,
        "peer_name": peer_name,
    }


def search() -> dict[str, Any]:
    """512 queries at once over 400 documents, against bm25s's own retrieval with the same
    scores."""
    import bm25s

    from corpus_prep.read.documents import DocumentRow
    from corpus_prep.search.index import build_index, load_index
    from flows.worlds.encyclopaedia import corpus

    documents = [DocumentRow(**d) for d in corpus(1, 400)]
    queries = [random.Random(i).choice(documents).title for i in range(512)]
    with tempfile.TemporaryDirectory() as folder:
        index = load_index(build_index(documents, Path(folder) / "index"))
        peer = bm25s.BM25()
        peer.index(
            [f"{d.title} {d.title} {d.text}".lower().split() for d in documents],
            show_progress=False,
        )
        ours = cpu_s(lambda: index.search(queries, 3))
        theirs = cpu_s(
            lambda: peer.retrieve([q.lower().split() for q in queries], k=3, show_progress=False)
        )
    return line(
        "search_vs_bm25s_retrieve",
        "bm25s.BM25.retrieve",
        ours / 512 * 1e3,
        theirs / 512 * 1e3,
        "ms/query",
    )


def update() -> dict[str, Any]:
    """One GRPO step on 128 stored datums, against a plain torch loop over the same datums, one
    at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.training.grpo import GRPOSettings, UpdateJob
    from tasks.training.trainer import train
    from tests.support.reference_grpo import load, scorer, token_terms
    from warehouse.schemas import BATCHES

    rows = _datums(128)
    settings = GRPOSettings(learning_rate=1e-4, beta=0.0, micro_batch_size=16)
    with tempfile.TemporaryDirectory() as folder:
        batch = Path(folder) / "batch.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=BATCHES.arrow), batch)

        def ours() -> None:
            with tempfile.TemporaryDirectory() as out:
                train(
                    UpdateJob(
                        batch=batch,
                        policy=MODEL,
                        reference=MODEL,
                        out=Path(out) / "x",
                        settings=settings,
                    )
                )

        def theirs() -> None:
            model = load(MODEL)
            score = scorer(model)
            terms = [token_terms(row, score, None, settings) for row in rows]
            (sum(t.sum() for t in terms) / sum(len(t) for t in terms)).backward()

        num_tokens = sum(len(r["prompt_token_ids"]) + len(r["completion_token_ids"]) for r in rows)
        scale = 1e6 / num_tokens
        return line(
            "update_vs_plain_torch",
            "torch, one datum at a time",
            cpu_s(ours) * scale,
            cpu_s(theirs) * scale,
            "CPU-s/M tokens",
        )


def _datums(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        prompt = int(rng.integers(15, 40))
        completion = int(rng.integers(60, 220))
        mask = (rng.random(completion) < 0.4).astype(int)
        rows.append(
            {
                "rollout_id": str(i),
                "datum": 0,
                "prompt_token_ids": rng.integers(5, 600, prompt).tolist(),
                "completion_token_ids": rng.integers(5, 600, completion).tolist(),
                "loss_mask": mask.tolist(),
                "logprobs": (-3.0 * mask).tolist(),
                "advantage": float(rng.normal()),
            }
        )
    return rows


def bookkeeping() -> dict[str, Any]:
    """An empty stage, with its recipe, hashes, lock and publishing, against a bare Parquet file
    of the same rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tasks.stage import stage
    from warehouse.schemas import SAMPLES
    from warehouse.store import Store

    rows = [
        {"sample_id": str(i), "document_id": "d", "task_type": "t", "search_turns": 1}
        for i in range(100)
    ]
    made = stage(SAMPLES)(hundred_samples)
    with tempfile.TemporaryDirectory() as folder:
        place = Store(folder).run("bench")
        count = iter(range(10**6))
        ours = cpu_s(lambda: made(place, rows, label=str(next(count))), repeats=30)
        theirs = cpu_s(
            lambda: pq.write_table(
                pa.Table.from_pylist(rows, schema=SAMPLES.arrow), Path(folder) / "bare.parquet"
            ),
            repeats=30,
        )
    return line(
        "stage_vs_bare_parquet", "pyarrow.parquet.write_table", ours * 1e3, theirs * 1e3, "ms/table"
    )


def thousand_stages(count: int = 1000) -> list[dict[str, Any]]:
    """A flow of a thousand empty stages under Prefect, built and then found fresh, in seconds of
    wall time, against Prefect's own tasks with persisted and then cached results."""
    os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
    from prefect import flow, task
    from prefect.cache_policies import INPUTS
    from prefect.testing.utilities import prefect_test_harness

    from tasks.stage import stage
    from warehouse.schemas import SAMPLES
    from warehouse.store import Store

    rows = [
        {"sample_id": str(i), "document_id": "d", "task_type": "t", "search_turns": 1}
        for i in range(100)
    ]
    made = stage(SAMPLES)(hundred_samples)

    @task(persist_result=True, cache_policy=INPUTS)
    def cached(number: int) -> list[dict[str, Any]]:
        return rows

    @flow
    def ours(folder: str) -> None:
        place = Store(folder).run("bench")
        for number in range(count):
            made(place, rows, label=str(number))

    @flow
    def theirs() -> None:
        for number in range(count):
            cached(number)

    def seconds(work: Callable[[], Any]) -> float:
        wait_for_idle_children()
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    with prefect_test_harness(), tempfile.TemporaryDirectory() as folder:
        first = seconds(lambda: ours(folder))
        fresh = seconds(lambda: ours(folder))
        peer_first = seconds(theirs)
        peer_fresh = seconds(theirs)
    peer = "Prefect tasks with persisted results"
    return [
        line("thousand_stages_made", peer, first, peer_first, "s"),
        line("thousand_stages_found_fresh", peer, fresh, peer_fresh, "s"),
    ]


def wait_for_idle_children(at_most_s: float = 300.0) -> None:
    """Wait until child processes are idle: Prefect's server processes a flow's events for a
    while after the flow."""
    children = psutil.Process().children(recursive=True)
    end = time.monotonic() + at_most_s
    busy_percent = 100.0
    while busy_percent > 10 and time.monotonic() < end:
        for child in children:
            child.cpu_percent()
        time.sleep(2)
        busy_percent = sum(child.cpu_percent() for child in children)


def hundred_samples(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows


def main() -> None:
    BENCH.parent.mkdir(parents=True, exist_ok=True)
    with BENCH.open("a") as file:
        for benchmark in (search, update, bookkeeping, thousand_stages):
            found = benchmark()
            for row in found if isinstance(found, list) else [found]:
                file.write(json.dumps(row) + "\n")
                costs = f"ours {row['ours']:>10} peer {row['peer']:>10} {row['unit']:16}"
                print(f"{row['name']:28} {costs} ratio {row['ratio']}", flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
