"""Signatures equal datasketch's; shingles match a literal reading of their definition; bands
find what they promise."""

import random
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash

from corpus_prep.dedup.minhash import (
    MinHashing,
    band_hashes,
    permutations,
    signatures,
)
from corpus_prep.dedup.shingles import Shingling, shingle, shingle_hash, shingle_sets, text_hashes

TEXTS = [
    "The cat sat on the mat, and the dog sat on the log.",
    "One word",
    "",
    "!!! ... ???",
    "Überraschung: die Straße, naïve café — “quoted”, x² and ﬁne",
    "cafe\u0301 in decomposed letters, ガ in half width: ｶﾞ",
    "北京是中国的首都 and Tokyo is 東京",
    "ภาษาไทยเขียนติดกัน",
    "नितीन चंद्रकांत देसाई",
    "emoji 😀 and 𝐁𝐨𝐥𝐝 letters, 𠀀 beyond the first plane",
    "one two three four five six one two three four five",
    "snake_case 3.14 a-b",
]


# Burmese, Khmer, Thai, Lao, kana, ideographs
UNSPACED = [
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x0E00, 0x0EFF),
    (0x3040, 0x30FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x10FFFF),
]


def units(text: str, unit: str) -> list[str]:
    """Words or characters of a text, character by character."""
    words = []
    word = ""
    seen = "".join(c for c in text if unicodedata.category(c) != "Cf")
    for c in unicodedata.normalize("NFKC", seen).lower():
        in_words = unicodedata.category(c)[0] in "LMN"
        alone = in_words and any(first <= ord(c) <= last for first, last in UNSPACED)
        if in_words and not alone:
            word += c
            continue
        words += [word] * bool(word) + [c] * alone
        word = ""
    words += [word] * bool(word)
    return words if unit == "words" else list(" ".join(words))


def shingles(text: str, shingling: Shingling) -> list[list[bytes]]:
    found = [unit.encode() for unit in units(text, shingling.unit)]
    starts = range(max(len(found) - shingling.size + 1, 1 if found else 0))
    return [found[start : start + shingling.size] for start in starts]


@pytest.mark.parametrize(
    "shingling", [Shingling(), Shingling(size=1), Shingling(unit="characters", size=7)]
)
def test_shingles_are_neighbouring_words_or_characters(shingling):
    hashes, offsets = shingle(pa.array(TEXTS), shingling)
    for number, text in enumerate(TEXTS):
        expected = [shingle_hash(s) for s in shingles(text, shingling)]
        assert hashes[offsets[number] : offsets[number + 1]].tolist() == expected, text


def test_texts_of_any_characters_are_read_by_the_definition():
    rng = random.Random(0)
    assigned = [c for c in map(chr, range(0x80, 0x20000)) if unicodedata.category(c)[0] not in "C"]
    pool = [
        c
        for c in rng.sample(assigned, 3000)
        if pa.compute.utf8_lower(pa.scalar(c)).as_py() == c.lower()
    ]
    ascii_only = [chr(c) for c in range(128)]
    texts = [
        "".join(
            rng.choice(pool if rng.random() < beyond else ascii_only)
            for _ in range(rng.randint(0, 60))
        )
        for beyond in (0, 0.05, 0.5)
        for _ in range(700)
    ]
    # words around the width of a load
    texts += ["Ab" * n + end for n in range(20) for end in ("", ".", "\u00c9")]
    for shingling in (Shingling(size=1), Shingling(unit="characters", size=2)):
        hashes, offsets = shingle(pa.array(texts), shingling)
        for number, text in enumerate(texts):
            expected = [shingle_hash(s) for s in shingles(text, shingling)]
            assert hashes[offsets[number] : offsets[number + 1]].tolist() == expected, text


@pytest.mark.parametrize("text", ["A", "ab c", "\u00e9", "seventy", "\u5317"])
def test_a_text_shorter_than_what_is_loaded_at_once(text):
    assert shingle(pa.array([text]), Shingling()).hashes.tolist() == [
        shingle_hash(s) for s in shingles(text, Shingling())
    ]


def test_a_slice_with_nulls_is_read_like_a_fresh_array():
    array = pa.array(["before", *TEXTS, None, "after"])
    hashes, offsets = shingle(array.slice(1, len(TEXTS) + 1), Shingling())
    fresh_hashes, fresh_offsets = shingle(pa.array([*TEXTS, ""]), Shingling())
    assert hashes.tolist() == fresh_hashes.tolist()
    assert offsets.tolist() == fresh_offsets.tolist()


@pytest.mark.parametrize(
    "settings", [MinHashing(), MinHashing(num_permutations=64, seed=7, recall=0.9)]
)
def test_signatures_are_bit_for_bit_those_of_datasketch(settings):
    signed = signatures(pa.array(TEXTS), settings)
    assert signed.dtype == np.uint32
    for text, found in zip(TEXTS, signed, strict=True):
        expected = MinHash(
            settings.num_permutations,
            settings.seed,
            hashfunc=lambda shingle: shingle_hash(shingle) >> 32,
        )
        for item in shingles(text, settings.shingling):
            expected.update(item)
        assert found.tolist() == expected.hashvalues.tolist(), text


def test_permutations_are_datasketch_s():
    theirs = np.asarray(MinHash(128, 1).permutations)
    assert np.array_equal(np.array(permutations(128, 1)), theirs)


def test_estimates_agree_with_exact_similarities():
    rng = random.Random(0)
    words = [f"w{n}" for n in range(400)]
    one = [" ".join(rng.choices(words, k=300)) for _ in range(200)]
    other = [" ".join(w if rng.random() > 0.02 else "new" for w in text.split()) for text in one]
    a, b = (signatures(pa.array(texts), MinHashing()) for texts in (one, other))
    exact = []
    for text, copy in zip(one, other, strict=True):
        s, t = (set(map(tuple, shingles(x, Shingling()))) for x in (text, copy))
        exact.append(len(s & t) / len(s | t))
    estimated = (a == b).mean(axis=1)
    # its standard error over 200 pairs is below 0.003
    assert abs(np.mean(estimated - exact)) < 0.01
    assert np.std(estimated - exact) == pytest.approx(
        np.sqrt(np.mean(exact * (1 - np.array(exact))) / 128), rel=0.2
    )


def test_sets_hold_each_shingle_once_in_order():
    sets = shingle_sets(pa.array(["a b a b a b", "", "c"]), Shingling(size=2))
    assert np.diff(sets.offsets).tolist() == [2, 0, 1]
    assert sets.hashes[:2].tolist() == sorted(
        [shingle_hash([b"a", b"b"]), shingle_hash([b"b", b"a"])]
    )


def test_text_hashes_ignore_case_punctuation_and_white_space_but_not_order():
    texts = ["A b, c!", "a  b\nc", "a c b", "???", "???", "!!!", "", "ab c"]
    same = list(zip(*(column.tolist() for column in text_hashes(pa.array(texts))), strict=True))
    assert [same.index(value) for value in same] == [0, 0, 2, 3, 3, 5, 6, 7]


def test_bands_are_the_widest_that_find_a_pair_at_the_threshold():
    settings = MinHashing()
    assert (settings.num_bands, settings.band_rows) == (21, 6)
    assert settings.chance(0.8) == pytest.approx(1 - (1 - 0.8**6) ** 21)
    assert settings.chance(0.8, rows=7) < 0.99 <= settings.chance(0.8)
    assert (MinHashing(rows=8).num_bands, MinHashing(threshold=0.9).band_rows) == (16, 10)
    with pytest.raises(
        ValueError, match=r"16 permutations cannot find 99% of the pairs at Jaccard 0\.2"
    ):
        MinHashing(num_permutations=16, threshold=0.2)


def test_bands_are_equal_where_the_signatures_are():
    settings = MinHashing(num_permutations=12, rows=3)
    texts = pa.array(["a b c d e f g h", "a b c d e f g i", "A b c d e f g h", ""])
    signed, (bands, has_shingles) = signatures(texts, settings), band_hashes(texts, settings)
    assert bands.shape == (4, 4)
    assert has_shingles.tolist() == [True, True, True, False]
    for one in range(3):
        for other in range(3):
            equal = (signed[one] == signed[other]).reshape(4, 3).all(axis=1)
            assert (bands[one] == bands[other]).tolist() == equal.tolist()
    assert len(set(bands[0].tolist())) == 4
