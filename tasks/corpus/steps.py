"""What the stages of corpus preparation share: input documents, the folder of partial results,
and counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from corpus_prep.corpus import Corpus
from warehouse.draft import Shards
from warehouse.schemas import Measurement
from warehouse.store import Table

# parts of `measurements`, in the order of the work
IN_ORDER = (
    "read",
    "exact",
    "bands",
    "duplicates",
    "near",
    "containments",
    "contained",
    "contaminations",
    "decontamination",
    "embeddings",
    "clusters",
    "segments",
    "lengths",
    "document_sets",
    "document_sets.padded",
    "index",
)


def corpus_of(documents: Table, screened: Sequence[Table] = ()) -> Corpus:
    """The documents that no screening dropped."""
    return Corpus(
        tuple(documents.paths()), tuple(path for table in screened for path in table.paths())
    )


def folder_of(shards: Shards) -> Path:
    """Create the shards' folder, which survives a kill, and return it."""
    shards.folder.mkdir(parents=True, exist_ok=True)
    return shards.folder


def costs(table: Table) -> Iterator[tuple[str, float]]:
    """Yield the CPU-seconds and peak memory (MB) of the stage that made a table, in the attempt
    that completed it."""
    yield from ((name, table.recipe[name]) for name in ("cpu_s", "peak_memory_mb"))


def screened_counts(table: Table) -> Iterator[tuple[str, float]]:
    """Yield the numbers of rows into and out of a screening, and of dropped rows by reason."""
    dropped = table.recipe["counts"]
    yield "rows_in", table.num_rows
    yield "rows_out", table.num_rows - sum(dropped.values())
    yield from ((f"dropped: {reason}", number) for reason, number in sorted(dropped.items()))


def measured(part: str, metrics: Iterable[tuple[str, float]]) -> Iterator[Measurement]:
    """Yield metrics as rows of `measurements`."""
    for metric, value in metrics:
        yield {"part": part, "metric": metric, "value": float(value)}
