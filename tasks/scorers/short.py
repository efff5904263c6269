"""Short answers: exact match, F1 and cover match, each the best over the accepted answers.

Exact match and F1 are SQuAD's (Rajpurkar et al., arXiv 1606.05250), which NQ-open and MuSiQue
share. Other scripts differ: TriviaQA's replaces punctuation with a blank, and HotpotQA's and
2Wiki's give no F1 for a part of the words if the answer or the reference is yes or no.
`transformers.data.metrics.squad_metrics` has the same metrics but needs torch; the tests compare
with it.
"""

from __future__ import annotations

import re
import string
from collections import Counter

from warehouse.schemas import Row

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# of an answer that may cover the reference: one that lists everything would cover it, too
MOST_WORDS = 40


def score(item: Row, answer: str) -> dict[str, float]:
    """`em` (equal words), `f1` and `cover` (a short answer holds the reference), each 0..1, against
    the best of the item's references."""
    plain = normalised(answer)
    accepted = [normalised(reference) for reference in item["references"]]
    short = len(answer.split()) <= MOST_WORDS
    return {
        "em": float(plain in accepted),
        "f1": max(f1(plain.split(), reference.split()) for reference in accepted),
        "cover": float(
            short and any(f" {reference} " in f" {plain} " for reference in accepted if reference)
        ),
    }


def normalised(text: str) -> str:
    """A text normalised as in SQuAD: lower case, no punctuation, no articles, single blanks.

    >>> normalised("The U.S. won, a-b")
    'us won ab'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(words: list[str], reference: list[str]) -> float:
    """The harmonic mean of precision and recall over words; if either has no words, 1 if both have
    none, else 0.

    >>> f1(["white", "nile"], ["nile"])
    0.6666666666666666
    """
    if not words or not reference:
        return float(words == reference)
    same = (Counter(words) & Counter(reference)).total()
    if same:
        return 2 * same / (len(words) + len(reference))
    return 0.0
