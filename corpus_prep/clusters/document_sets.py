"""Document sets: documents of one cluster, optionally padded with others to fill a context.

A set comes from one cluster. Its documents are taken in order of similarity to the centre; if the
cluster yields several sets, they are dealt out in turn. A padded set mixes distractors from other
clusters among its members, up to a number of tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

TRIES = 100  # attempts to draw a distractor that is not in the set yet
SLACK = 0.02  # share of a budget that may stay empty


class SetSettings(BaseModel):
    """Sets of documents of one cluster. SPELL has about 20 in a set."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    size: PositiveInt = Field(default=20, description="maximum number of documents in a set")
    smallest: PositiveInt = Field(
        default=10,
        description="minimum number of documents in a set; a cluster with fewer yields none",
    )
    max_tokens: PositiveInt | None = Field(
        default=None,
        description="maximum number of tokens in a set; documents that do not fit are left out",
    )
    whole: bool = Field(
        default=False,
        description=(
            "make each cluster one set, whatever its size; one beyond max_tokens yields none"
        ),
    )

    @model_validator(mode="after")
    def _smallest_is_not_larger(self) -> Self:
        if self.smallest > self.size and not self.whole:
            raise ValueError(
                f"smallest {self.smallest} is more than size {self.size}: no set could be made"
            )
        return self


class Padding(BaseModel):
    """Distractors for a set. EAPO pads to 32K to 128K tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    budgets: tuple[PositiveInt, ...] = Field(
        default=(32_768, 65_536, 131_072),
        description=(
            "token budgets of padded sets, for members and distractors; one is drawn for each set"
        ),
    )
    seed: int = Field(default=0, description="seed of the draws")


@dataclass(frozen=True, slots=True)
class SizedDocument:
    """A document, its cluster and length in tokens."""

    document_id: str
    cluster: int
    num_tokens: int

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch]) -> Iterator[SizedDocument]:
        """One per row of document_id, cluster and num_tokens."""
        for batch in batches:
            yield from map(cls, *(batch[field.name].to_pylist() for field in fields(cls)))


def sets_of(
    cluster: Sequence[SizedDocument], settings: SetSettings
) -> Iterator[list[SizedDocument]]:
    """Yield the sets of one cluster.

    `cluster` has its documents, the most similar to its centre first; a set keeps this order. A set
    of fewer than `settings.smallest` documents is left out.
    """
    most = math.inf if settings.max_tokens is None else settings.max_tokens
    if settings.whole:
        if (
            len(cluster) >= settings.smallest
            and sum(document.num_tokens for document in cluster) <= most
        ):
            yield list(cluster)
        return
    num_sets = max(1, round(len(cluster) / settings.size))
    for number in range(num_sets):
        chosen: list[SizedDocument] = []
        left = most
        for document in cluster[number::num_sets]:
            if document.num_tokens <= left and len(chosen) < settings.size:
                chosen.append(document)
                left -= document.num_tokens
        if len(chosen) >= settings.smallest:
            yield chosen


class Distractors:
    """All documents of a corpus, ordered by length, to draw from."""

    def __init__(self, documents: pa.Table):
        """documents: document_id, cluster, num_tokens."""
        in_order = documents.sort_by([("num_tokens", "ascending"), ("document_id", "ascending")])
        self._ids = in_order["document_id"].combine_chunks()
        self._clusters, self._lengths = (
            in_order[name].to_numpy() for name in ("cluster", "num_tokens")
        )

    def pad(
        self, set_id: str, members: Sequence[SizedDocument], padding: Padding
    ) -> tuple[int, list[tuple[SizedDocument, str]]]:
        """The budget drawn for a set, and its documents in random order.

        Each document is marked `member` or `distractor`. A set longer than its budget gets no
        distractors.

        The draw depends only on the seed and the set's id.
        """
        rng = random.Random(f"{padding.seed} {set_id}")
        budget = rng.choice(padding.budgets)
        left = budget - sum(member.num_tokens for member in members)
        clusters = {member.cluster for member in members}
        taken = set()
        added = []
        while left > SLACK * budget:
            drawn = self._draw(rng, left, clusters, taken)
            if drawn is None:
                break
            added.append(drawn)
            left -= drawn.num_tokens
        shown = [(member, "member") for member in members] + [(one, "distractor") for one in added]
        rng.shuffle(shown)
        return budget, shown

    def _draw(
        self, rng: random.Random, most: int, clusters: set[int], taken: set[int]
    ) -> SizedDocument | None:
        """An unused document of at most this many tokens, from a cluster other than these."""
        fitting = int(np.searchsorted(self._lengths, most, side="right"))
        for _ in range(TRIES if fitting else 0):
            row = rng.randrange(fitting)
            cluster = int(self._clusters[row])
            if row not in taken and cluster not in clusters:
                taken.add(row)
                return SizedDocument(self._ids[row].as_py(), cluster, int(self._lengths[row]))
        return None
