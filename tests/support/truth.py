"""Outside oracles of duplicate removal: shingles as plain Python sets, an exact join of all pairs,
and a comparison of removed documents with it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import scipy.sparse

MARKS = "".join(c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] == "M")
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
WORDS = re.compile(rf"(?=[\w{MARKS}])[{UNSPACED}]|(?:(?![{UNSPACED}_])[\w{MARKS}])+")

Pairs = dict[tuple[int, int], float]  # Jaccard similarities, the smaller document first


class Judged(NamedTuple):
    """Removed documents by their justification: a similar document stayed (`direct`), a document
    stayed that is joined to it through others (`chained`), or neither (`wrong`). `missed` counts
    documents that should have been removed: all but one of every family."""

    direct: int
    chained: int
    wrong: int
    missed: int

    @property
    def recall(self) -> float:
        """The share of the necessary removals that were made."""
        made = self.direct + self.chained
        return made / (made + self.missed)


def word_shingles(text: str, size: int = 5) -> set[str]:
    """The set of a text's word 5-grams, as a user of datasketch or rensa would make it."""
    return joined(re.findall(r"\w+", text.lower()) or [text], size)


def defined_shingles(text: str, size: int = 5) -> set[str]:
    """The same set by the definition in `corpus_prep.dedup.shingles`.

    By that definition, a text without words has no shingles and only duplicates equal texts; here
    it is one shingle.
    """
    return joined(WORDS.findall(unicodedata.normalize("NFKC", text).lower()) or [text], size)


def joined(words: list[str], size: int) -> set[str]:
    return {" ".join(words[at : at + size]) for at in range(max(len(words) - size + 1, 1))}


def exact_join(sets: list[set[str]], threshold: float) -> Pairs:
    """All pairs at or above a Jaccard, by a sparse matrix product over shingles that occur in
    several texts."""
    seen = Counter(shingle for shingles in sets for shingle in shingles)
    shared = {
        shingle: number
        for number, shingle in enumerate(s for s, count in seen.items() if count > 1)
    }
    columns = [[shared[s] for s in shingles if s in shared] for shingles in sets]
    indptr = np.cumsum([0, *map(len, columns)])
    flat = np.array([c for column in columns for c in column], np.int64)
    incidence = scipy.sparse.csr_matrix(
        (np.ones(len(flat), np.int32), flat, indptr), (len(sets), len(shared))
    )
    sizes = np.array([len(shingles) for shingles in sets])
    found = {}
    for start in range(0, len(sets), 2000):
        both = (incidence[start : start + 2000] @ incidence.T).tocoo()
        first = both.row + start
        second = both.col
        jaccard = both.data / (sizes[first] + sizes[second] - both.data)
        kept = (first < second) & (jaccard >= threshold)
        found |= dict(
            zip(
                zip(first[kept].tolist(), second[kept].tolist(), strict=True),
                jaccard[kept],
                strict=True,
            )
        )
    return found


def families(pairs: Pairs) -> list[set[int]]:
    """Documents joined by pairs, directly or through others."""
    family: dict[int, set[int]] = {}
    for pair in pairs:
        one, other = sorted((family.get(document, {document}) for document in pair), key=len)
        if one is not other:
            other |= one
            family.update(dict.fromkeys(other, other))
    return list({id(members): members for members in family.values()}.values())


def judge(removed: set[int], truth: Pairs) -> Judged:
    """Judge the removed documents by the exact join."""
    similar = defaultdict(set)
    for one, other in truth:
        similar[one].add(other)
        similar[other].add(one)
    stays = {document: family - removed for family in families(truth) for document in family}
    direct = {document for document in removed if similar[document] - removed}
    chained = {document for document in removed - direct if stays.get(document)}
    missed = sum(len(family - removed) - 1 for family in families(truth) if family - removed)
    return Judged(len(direct), len(chained), len(removed - direct - chained), missed)
