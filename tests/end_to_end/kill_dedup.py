"""Kill a search for duplicates at random, resume it, and compare it with an undisturbed one.

    python -m tests.end_to_end.kill_dedup --documents 200000 --kills 12

Both run the stages over the same generated documents in separate stores. Kills are spread evenly
over the tables and parts that the undisturbed search made: each kill follows one of these after a
random, seeded time. Appends a JSON line to data/bench/corpus.jsonl.
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
from typing import Any, NamedTuple

import pyarrow as pa

from corpus_prep.dedup.minhash import MinHashing
from tasks.corpus import dedup
from tasks.stage import stage
from tests.support.corpora import documents, generated, with_copies
from warehouse.draft import FILES, RECIPE
from warehouse.schemas import DOCUMENTS
from warehouse.store import Store, Table

PROJECT = Path(__file__).parents[2]
BENCH = PROJECT / "data" / "bench" / "corpus.jsonl"
RUN = "killed"
CHUNK = 5_000
COPIES = 0.25
POLL_S = 0.005


class Moment(NamedTuple):
    """A table, or a part of one, that was made, and the time until the next one."""

    name: str
    wait_s: float


@stage(DOCUMENTS)
def given(count: int) -> Iterator[pa.Table]:
    """Generated documents, a quarter of them edited copies of others in their chunk."""
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        copies = int(size * COPIES)
        yield documents(with_copies(list(generated(size - copies, first)), copies, first), first)


def search(store: Path, count: int, steps: str) -> None:
    """Run all stages as a flow would, or only make the documents."""
    place = Store(store).run(RUN)
    settings = MinHashing()
    table = given(place, count)
    if steps == "documents":
        return
    exact = dedup.screen_exact_duplicates(place, table, label="exact")
    bands = dedup.band_documents(place, table, screened=[exact], settings=settings)
    found = dedup.find_duplicates(
        place, table, bands, screened=[exact], settings=settings, canaries=500
    )
    dedup.screen_near_duplicates(place, table, found, screened=[exact], label="near")


def begin(store: Path, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.end_to_end.kill_dedup",
            "--search",
            str(store),
            "--documents",
            str(count),
        ]
    )


def compare(count: int, kills: int, seed: int = 0) -> dict[str, Any]:
    """The result line: what each kill followed, and whether all tables are equal. Raises
    RuntimeError if a search fails by itself."""
    with tempfile.TemporaryDirectory() as folder:
        untouched = Path(folder) / "untouched"
        killed = Path(folder) / "killed"
        process = begin(untouched, count)
        moments = list(watch(untouched, process))
        finish(process)
        hits = list(kill(moments, killed, count, kills, random.Random(seed)))
        finish(begin(killed, count))
        tables = list(Store(untouched).tables())
        equal = [table.address for table in tables if same(table, Store(killed).get(table.address))]
        return {
            "name": "dedup_killed",
            "documents": count,
            "kills": len(hits),
            "killed_after": hits,
            "tables": len(tables),
            "equal": len(equal),
            "rows": {table.address: table.num_rows for table in tables},
        }


def watch(store: Path, process: subprocess.Popen[bytes]) -> Iterator[Moment]:
    """Yield what a search makes, in order."""
    seen = {""}
    last = time.monotonic()
    name = ""
    while process.poll() is None:
        time.sleep(POLL_S)
        for new in sorted(made(store) - seen):
            now = time.monotonic()
            yield Moment(name, now - last)
            seen.add(new)
            name = new
            last = now


def made(store: Path) -> set[str]:
    """Addresses of tables, and `address: part` for the parts of the next one. The empty name is
    the beginning."""
    found = {
        recipe.parent.relative_to(store / "runs").as_posix()
        for recipe in store.glob(f"runs/*/*/{RECIPE}")
    }
    try:
        parts = [
            path for path in store.glob("unfinished/*/*/[!.]*") if not path.name.endswith("spilled")
        ]
    except FileNotFoundError:  # a table was published meanwhile
        return made(store)
    return {"", *found, *(f"{path.parts[-3].replace('~', '/')}: {path.name}" for path in parts)}


def kill(
    moments: list[Moment], store: Path, count: int, kills: int, rng: random.Random
) -> Iterator[str]:
    """Start a search repeatedly and kill it.

    Yields, for each kill that hit, what the search had made last.
    """
    for number in range(kills):
        name, wait_s = moments[number * (len(moments) - 1) // max(kills - 1, 1)]
        process = begin(store, count)
        while process.poll() is None and not {name, name.split(":")[0]} & made(store):
            time.sleep(POLL_S)
        time.sleep(rng.uniform(0, wait_s))
        if process.poll() is not None:
            return
        process.kill()
        process.wait()
        yield name or "nothing"


def finish(process: subprocess.Popen[bytes]) -> None:
    if process.wait():
        raise RuntimeError("a search failed by itself")


def same(one: Table, other: Table) -> bool:
    """Whether two tables have the same rows in the same order, and the same files beside them."""
    files = [
        {k: v["hash"] for k, v in t.recipe["contents"].items() if k.startswith(FILES)}
        for t in (one, other)
    ]
    return one.arrow.equals(other.arrow) and files[0] == files[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--search", type=Path, help="only search, in this store")
    parser.add_argument("--steps", choices=("documents", "all"), default="all", help="of a search")
    arguments = parser.parse_args()
    if arguments.search:
        search(arguments.search, arguments.documents, arguments.steps)
        return
    line = compare(arguments.documents, arguments.kills, arguments.seed)
    with BENCH.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(line)
    sys.exit(line["tables"] != line["equal"])


if __name__ == "__main__":
    main()
