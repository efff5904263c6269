"""MinHash signatures and their bands for many texts at once, bit for bit equal to datasketch's.

The permutations are those of `datasketch.MinHash` (scheme affine32); the 32-bit hash of a shingle
is the upper half of `shingles.shingle_hash`.
"""

from __future__ import annotations

import functools
from typing import Self

import numpy as np
import pyarrow as pa
from datasketch import MinHash
from numba import njit
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from corpus_prep.dedup.shingles import WEIGHT, Shingling, mix, shingle

EMPTY = np.uint32(0xFFFFFFFF)  # datasketch's value for a signature of no shingles
# MurmurHash3's 32-bit finaliser, as datasketch
FACTOR_1 = np.uint32(0x85EBCA6B)
FACTOR_2 = np.uint32(0xC2B2AE35)
SHIFT_1 = np.uint32(16)
SHIFT_2 = np.uint32(13)
UPPER_HALF = np.uint64(32)


class MinHashing(BaseModel):
    """How to search for near-duplicates.

    The defaults are those of datasketch's `MinHashLSH` in SPELL's recipe: Jaccard threshold 0.8,
    128 permutations.

    A signature is cut into `num_bands` bands of `band_rows` values. Two texts are compared if any
    of their bands are equal, which happens with probability 1 - (1 - jaccard^rows)^bands. Bands are
    as wide as they can be while a pair right at the threshold is still found with probability
    `recall`. At 0.8 and 128 permutations that is 21 bands of 6 rows, with 0.998; the often used 16
    bands of 8 rows would reach only 0.947.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threshold: float = Field(
        default=0.8, gt=0, le=1, description="minimum Jaccard similarity of near-duplicates"
    )
    num_permutations: PositiveInt = Field(
        default=128,
        description=(
            "number of values in a signature: more of them find rarer similarities and take longer"
        ),
    )
    seed: int = Field(default=1, description="seed of the hash functions")
    recall: float = Field(
        default=0.99, gt=0, lt=1, description="recall of pairs at the threshold, by the bands alone"
    )
    rows: PositiveInt | None = Field(
        default=None, description="number of rows in a band; by default derived from recall"
    )
    shingling: Shingling = Shingling()

    @model_validator(mode="after")
    def _can_reach(self) -> Self:
        if self.rows is None and self.chance(self.threshold, 1) < self.recall:
            raise ValueError(
                f"{self.num_permutations} permutations cannot find {self.recall:.0%} of the pairs"
                f" at Jaccard {self.threshold}; use more permutations, a higher threshold or a"
                " lower recall"
            )
        if self.rows is not None and self.rows > self.num_permutations:
            raise ValueError(
                f"a band cannot have {self.rows} rows of {self.num_permutations} permutations"
            )
        return self

    @property
    def band_rows(self) -> int:
        """Rows of a band: `rows`, else the most with which a pair at the threshold is found with
        probability `recall`."""
        if self.rows is not None:
            return self.rows
        return max(
            r
            for r in range(1, self.num_permutations + 1)
            if self.chance(self.threshold, r) >= self.recall
        )

    @property
    def num_bands(self) -> int:
        """Bands of a signature. Values left over at its end are in none."""
        return self.num_permutations // self.band_rows

    def chance(self, jaccard: float, rows: int | None = None) -> float:
        """The probability that a pair of this similarity is compared.

        >>> round(MinHashing(rows=8).chance(0.8), 3)
        0.947
        """
        rows = rows or self.band_rows
        return 1 - (1 - jaccard**rows) ** (self.num_permutations // rows)


def signatures(texts: pa.Array, settings: MinHashing) -> np.ndarray:
    """Signatures, uint32 (D, num_permutations). A text without shingles has EMPTY everywhere."""
    hashes, offsets = shingle(texts, settings.shingling)
    return _sign(hashes, offsets, *permutations(settings.num_permutations, settings.seed))


def band_hashes(texts: pa.Array, settings: MinHashing) -> tuple[np.ndarray, np.ndarray]:
    """Band hashes, uint64 (D, num_bands), and which texts have shingles (D).

    Two texts' hashes are equal if their bands are.
    """
    hashes, offsets = shingle(texts, settings.shingling)
    signed = _sign(hashes, offsets, *permutations(settings.num_permutations, settings.seed))
    return _band(signed, settings.num_bands, settings.band_rows), np.diff(offsets) > 0


@functools.cache
def permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """datasketch's multipliers and summands for `count` permutations, uint32 (count,) each."""
    factors, summands = np.asarray(MinHash(count, seed, scheme="affine32").permutations)
    return np.ascontiguousarray(factors), np.ascontiguousarray(summands)


@njit(cache=True, nogil=True)
def _sign(hashes, offsets, factors, summands):
    signatures = np.full((len(offsets) - 1, len(factors)), EMPTY, np.uint32)
    for d in range(len(offsets) - 1):
        signature = signatures[d]
        for i in range(offsets[d], offsets[d + 1]):
            value = np.uint32(hashes[i] >> UPPER_HALF)
            value = np.uint32((value ^ (value >> SHIFT_1)) * FACTOR_1)
            value = np.uint32((value ^ (value >> SHIFT_2)) * FACTOR_2)
            value = np.uint32(value ^ (value >> SHIFT_1))
            for k in range(len(factors)):
                signature[k] = min(signature[k], np.uint32(factors[k] * value + summands[k]))
    return signatures


@njit(cache=True, nogil=True)
def _band(signed, num_bands, rows):
    band_hashes = np.empty((len(signed), num_bands), np.uint64)
    for d in range(len(signed)):
        for band in range(num_bands):
            total = np.uint64(band)
            for k in range(band * rows, (band + 1) * rows):
                total = mix(total * WEIGHT + np.uint64(signed[d, k]))
            band_hashes[d, band] = total
    return band_hashes
