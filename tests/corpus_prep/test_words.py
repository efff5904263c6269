"""Words as n-grams see them: folded, with their places, and hashed alike by the fast and the
plain implementation."""

import numpy as np
import pyarrow as pa
import pytest

from corpus_prep.contamination.words import (
    ALONE,
    FOLDED,
    SEPARATOR,
    SKIPPED,
    Words,
    _table,
    count_words,
    grams,
    words,
)
from corpus_prep.scripts import UNSPACED

ZOO = [
    "Janet\u2019s ducks lay 16 eggs; she doesn't count them twice.",
    "E\u0301cole, \u00c9COLE and ecole: one word thrice",
    "",
    "中国GDP增长5％，北京",
    "soft\u00adhyphen zero\u200bwidth \ufeffmark",
    "Straße ﬁne ½ x² Ω Ångström",
    "한국어 문장 और हिन्दी के शब्द",
    "\U0001d400bold \U0001f600 smile \U000e0041tag",
    "a",
    "   \n\t ",
    "…",
]


def folded(text: str) -> list[tuple[str, int, int]]:
    """The same words one by one, as text with their places: a plain version to check the fast
    one."""
    table = _table()
    out = []
    word = ""
    start = 0
    end = 0
    for place, character in enumerate(text):
        value = int(table[min(ord(character), FOLDED - 1)])
        if value == SKIPPED:
            continue
        if word and (value == SEPARATOR or value & ALONE or out_of_line(word)):
            out.append((word, start, end))
            word = ""
        if value != SEPARATOR:
            if not word:
                start = place
            word = word + chr(value & ~ALONE)
            end = place + 1
    if word:
        out.append((word, start, end))
    return out


def out_of_line(word: str) -> bool:
    """Whether the word is a character that is a word by itself."""
    return any(low <= ord(word[0]) <= high for low, high in UNSPACED)


def all_words(texts: list[str]) -> Words:
    parts = list(words(pa.array(texts, pa.string())))
    return Words(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Words._fields)
    )


def test_case_accents_widths_and_apostrophes_do_not_count():
    said = [" ".join(word for word, _, _ in folded(text)) for text in ZOO]
    assert said[0] == "janet s ducks lay 16 eggs she doesn t count them twice"
    assert said[1] == "ecole ecole and ecole one word thrice"
    assert said[4] == "softhyphen zerowidth mark"


def test_chinese_has_a_word_for_each_character():
    assert [word for word, _, _ in folded(ZOO[3])] == [
        "中",
        "国",
        "gdp",
        "增",
        "长",
        "5",
        "北",
        "京",
    ]


def test_words_are_counted_as_they_are_found():
    texts = pa.chunked_array([ZOO[:4], ZOO[4:]])
    assert count_words(texts).tolist() == [len(folded(text)) for text in ZOO]


@pytest.mark.parametrize("text", ZOO)
def test_a_word_lies_where_it_is_said_to_lie(text):
    for word, start, end in folded(text):
        assert [word for word, _, _ in folded(text[start:end])] == [word]


def test_the_fast_way_finds_the_same_words_and_equal_words_have_equal_hashes():
    found = all_words(ZOO)
    plain = [(number, *word) for number, text in enumerate(ZOO) for word in folded(text)]
    assert list(zip(found.document, found.start, found.end, strict=True)) == [
        (d, s, e) for d, _, s, e in plain
    ]
    of_word: dict[str, int] = {}
    for (_, word, _, _), value in zip(plain, found.hash.tolist(), strict=True):
        assert of_word.setdefault(word, value) == value
    assert len(set(of_word.values())) == len(of_word)


def test_the_parts_that_texts_are_worked_on_in_do_not_show(monkeypatch):
    whole = all_words(ZOO * 3)
    monkeypatch.setattr("corpus_prep.contamination.words.MAX_BYTES", 40)
    parts = all_words(ZOO * 3)
    assert all(np.array_equal(getattr(whole, name), getattr(parts, name)) for name in Words._fields)


def test_runs_of_words_do_not_cross_texts_and_depend_on_order():
    found = all_words(["one two three", "three one two", "one two"])
    hashes, first = grams(found, 2)
    assert first.tolist() == [0, 1, 3, 4, 6]
    one_two = hashes[0]
    two_three = hashes[1]
    three_one = hashes[2]
    assert hashes.tolist() == [one_two, two_three, three_one, one_two, one_two]
    assert len({int(one_two), int(two_three), int(three_one)}) == 3
    assert grams(found, 9)[0].tolist() == []


def test_null_texts_and_slices_of_arrays_count_as_they_should():
    texts = pa.array(["skipped", None, "kept words", "last"])[1:3]
    [found] = words(texts)
    assert (found.document.tolist(), found.start.tolist()) == ([1, 1], [0, 5])
