"""Remove documents that are contained in a longer one, once duplicates have been removed.

found = find_contained(place, documents, screened=[exact, near], settings=Containment())
alone = screen_contained(place, documents, found, screened=[exact, near], label="contained")
measure_containment(place, found, alone, label="containments")
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from corpus_prep.dedup.containment import Containment, find_containments, screen_held
from corpus_prep.workers import Workers
from tasks.corpus.steps import corpus_of, costs, folder_of, measured, screened_counts
from tasks.stage import Rows, stage
from warehouse.draft import Draft, Shards
from warehouse.schemas import CONTAINMENTS, MEASUREMENTS, SCREENINGS, Measurement
from warehouse.store import Table

COUNTS = "boilerplate.json"


@stage(CONTAINMENTS, tools=("workers",))
def find_contained(
    documents: Table,
    *,
    screened: Sequence[Table] = (),
    settings: Containment,
    workers: Workers | None = None,
    shards: Shards,
    draft: Draft,
) -> Rows:
    """Yield every document that is contained in a longer one, with a kept document that contains
    it.

    `documents` and `screened` are the corpus and the screenings that it has gone through; documents
    that those dropped are ignored. The file `boilerplate.json` says how many documents share text
    with many others.
    """
    corpus = corpus_of(documents, screened)
    folder = folder_of(shards)
    yield from find_containments(corpus, settings, folder, workers, draft.files / COUNTS)


@stage(SCREENINGS)
def screen_contained(
    documents: Table, containments: Table, *, screened: Sequence[Table] = (), shards: Shards
) -> Rows:
    """Yield a screening of every document that no earlier one dropped: those in `containments` are
    dropped."""
    yield from screen_held(corpus_of(documents, screened), containments.paths(), folder_of(shards))


@stage(MEASUREMENTS)
def measure_containment(containments: Table, screening: Table) -> Iterator[Measurement]:
    """Yield what the search for contained documents did and cost, and the boilerplate found."""
    yield from measured("containments", costs(containments))
    yield from measured(
        "containments", json.loads((containments.files / COUNTS).read_text()).items()
    )
    yield from measured("contained", [*costs(screening), *screened_counts(screening)])
