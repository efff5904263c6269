"""Kill a search for duplicates at random, go on, and compare with one that was never touched.

    python -m tests.kill_dedup --documents 200000 --kills 10

Both run the stages over the same generated documents in stores of their own. Appends a JSON line to
data/bench/corpus.jsonl.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from corpus_prep.minhash import MinHashing
from tasks import dedup
from tasks.stage import stage
from tests.corpora import documents, generated, with_copies
from warehouse.schemas import DOCUMENTS
from warehouse.store import Store

PROJECT = Path(__file__).parent.parent
BENCH = PROJECT / "data" / "bench" / "corpus.jsonl"
RUN, CHUNK, COPIES = "killed", 5_000, 0.25


@stage(DOCUMENTS)
def given(count: int) -> Iterator[pa.Table]:
    """Generated documents, a quarter of them edited copies of others of their chunk."""
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        copies = int(size * COPIES)
        yield documents(with_copies(list(generated(size - copies, first)), copies, first), first)


def search(store: Path, count: int, steps: str) -> None:
    """All stages, as a flow would call them, or only the documents."""
    place, settings = Store(store).run(RUN), MinHashing()
    table = given(place, count)
    if steps == "documents":
        return
    exact = dedup.screen_exact_duplicates(place, table, label="exact")
    bands = dedup.band_documents(place, table, screened=[exact], settings=settings)
    found = dedup.find_duplicates(place, table, bands, screened=[exact], settings=settings, canaries=500)
    dedup.screen_near_duplicates(place, table, found, screened=[exact], label="near")


def begin(store: Path, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kill_dedup", "--search", str(store), "--documents", str(count)]
    )


def compare(count: int, kills: int, seed: int = 0) -> dict[str, Any]:
    """A line: kills that hit, and whether all tables are equal. Raises RuntimeError where a search fails by itself."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        untouched, killed = Path(folder) / "untouched", Path(folder) / "killed"
        if begin(untouched, count).wait():
            raise RuntimeError("the untouched search failed")
        whole_s, rng, hits = time.monotonic() - begun, random.Random(seed), 0
        while True:
            process = begin(killed, count)
            try:
                process.wait(rng.uniform(1, whole_s) if hits < kills else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                hits += 1
                continue
            if process.returncode:
                raise RuntimeError("a search failed by itself")
            break
        one, other = Store(untouched), Store(killed)
        tables = [table.address for table in one.tables()]
        equal = [address for address in tables if one.get(address).arrow.equals(other.get(address).arrow)]
        rows = {address: one.get(address).num_rows for address in tables}
    return {
        "name": "dedup_killed",
        "documents": count,
        "kills": hits,
        "tables": len(tables),
        "equal": len(equal),
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--search", type=Path, help="only search, in this store")
    parser.add_argument("--steps", choices=("documents", "all"), default="all", help="of a search")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.documents, arguments.steps)
        return
    line = compare(arguments.documents, arguments.kills)
    with BENCH.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line)
    sys.exit(line["tables"] != line["equal"])


if __name__ == "__main__":
    main()
