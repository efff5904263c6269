"""BLEU of many pairs, and clusters of similar tasks."""

import numpy as np
import pytest

from flows.rzero.novelty import bleu, clusters_of, novelty
from tests.support.rows import publish, row

TEXTS = [
    "what is the sum of 2 and 3 ?",
    "what is the sum of 3 and 2 ?",
    "find the sum of the squares of the first 9 primes",
    "the the the the the the",
    "the cat is on the mat",
    "area of a square",
    "what is 7 ?",
    "sum",
]
# nltk 3.10.4: sentence_bleu([reference.split()], hypothesis.split(),
# smoothing_function=SmoothingFunction().method1)
NLTK = [
    [1.0, 0.516973, 0.095035, 0.02398, 0.028518, 0.02398, 0.056122, 0.02398],
    [0.516973, 1.0, 0.095035, 0.02398, 0.028518, 0.02398, 0.056122, 0.02398],
    [0.093295, 0.093295, 1.0, 0.024808, 0.022417, 0.01885, 0.0, 0.01885],
    [0.024762, 0.024762, 0.02335, 1.0, 0.048549, 0.0, 0.0, 0.0],
    [0.029447, 0.029447, 0.021099, 0.048549, 1.0, 0.0, 0.040825, 0.0],
    [0.023019, 0.023019, 0.013961, 0.0, 0.0, 1.0, 0.0, 0.0],
    [0.053872, 0.053872, 0.0, 0.0, 0.04873, 0.0, 1.0, 0.0],
    [6e-05, 6e-05, 8e-06, 0.0, 0.0, 0.0, 0.0, 0.177828],
]


def test_bleu_is_that_of_nltk():
    expected = np.array(NLTK)
    expected[-1, -1] = 1.0  # our departure: the same words, however few
    assert bleu(TEXTS, TEXTS) == pytest.approx(expected, abs=1e-6)


def test_bleu_of_two_sets_is_a_part_of_bleu_of_all():
    assert (bleu(TEXTS[:3], TEXTS[3:]) == bleu(TEXTS, TEXTS)[:3, 3:]).all()


def test_many_texts_are_compared_in_blocks_with_the_same_result():
    many = [f"{text} {i % 7}" for i in range(90) for text in TEXTS[:3]]  # 270: more than a block
    whole = bleu(many, many)
    assert (whole[200:] == bleu(many[200:], many)).all()


def test_no_words_are_like_no_others():
    assert bleu(["", "a"], ["", "a b"]).tolist() == [
        [1.0, 0.0],
        [0.0, pytest.approx(np.exp(-1) * 0.1**0.75)],
    ]


def test_linkage_is_by_the_average_distance():
    """The first two texts are 0.2 apart; the third is 0.3 from the first and 0.8 from the second,
    so 0.55 on average."""
    similarity = np.array([[1.0, 0.8, 0.7], [0.8, 1.0, 0.2], [0.7, 0.2, 1.0]])
    assert clusters_of(similarity, 0.5) == [0, 0, 1]
    assert clusters_of(similarity, 0.56) == [0, 0, 0]


def test_clusters_are_merged_below_the_distance_and_not_at_it():
    assert clusters_of(np.array([[1.0, 0.5], [0.5, 1.0]]), 0.5) == [0, 1]
    assert clusters_of(np.array([[1.0, 0.501], [0.501, 1.0]]), 0.5) == [0, 0]


def test_the_earlier_of_two_texts_is_the_hypothesis():
    """With the shorter text as hypothesis it is 0.61 (brevity e^(1 - 6/4)), with the longer one
    0.54 (precisions 4/6, 3/5, 2/4, 1/3)."""
    short = "a b c d"
    long = "a b c d e f"
    assert bleu([short], [long])[0, 0] == pytest.approx(0.6065, abs=1e-4)
    assert bleu([long], [short])[0, 0] == pytest.approx(0.5081, abs=1e-4)
    for texts, clusters in (([short, long], [0, 0]), ([long, short], [0, 1])):
        assert clusters_of(bleu(texts, texts), distance=0.45) == clusters


def tasks(place, *texts, label="given", first=0, malformed="no question"):
    rows = [
        row("tasks", task_id=f"t{first + i}", text=text, malformed=None if text else malformed)
        for i, text in enumerate(texts)
    ]
    return publish(place, "tasks", *rows, label=label)


def test_every_task_has_its_cluster_and_its_share_of_the_batch(place):
    batch = tasks(
        place,
        "what is 2 plus 3 ?",
        "name a river",
        None,
        "what is 2 plus 4 ?",
        "what is 2 plus 3 ?",
    )
    found = novelty(place, tasks=batch).rows()
    assert [(r["cluster"], r["cluster_size"], r["share"]) for r in found] == [
        (0, 3, 3 / 5),
        (1, 1, 1 / 5),
        (None, None, None),
        (0, 3, 3 / 5),
        (0, 3, 3 / 5),
    ]
    assert {r["batch_size"] for r in found} == {5}


def test_what_the_engine_failed_to_write_is_not_of_the_batch(place):
    tables = [
        tasks(place, "one two three four"),
        tasks(place, None, label="b", first=1, malformed="engine error"),
    ]
    assert [(r["batch_size"], r["share"]) for r in novelty(place, tasks=tables).rows()] == [
        (1, 1.0),
        (1, None),
    ]


def test_a_batch_of_no_or_one_task(place):
    assert novelty(place, tasks=tasks(place)).rows() == []
    (alone,) = novelty(place.step(3), tasks=tasks(place.step(3), "a river")).rows()
    assert (alone["cluster_size"], alone["share"]) == (1, 1.0)
