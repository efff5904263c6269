"""BM25 over corpora larger than memory: the scores are those of bm25s, whatever is in memory at
once."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from corpus_prep.search import postings
from corpus_prep.search.bm25 import BM25_SETTINGS, Bm25Ranker, _words, write_bm25

WIKI = Path(__file__).parents[1] / "data" / "wiki_passages_30.parquet"


@pytest.fixture(scope="module")
def documents() -> list[tuple[str, str]]:
    rows = pq.read_table(WIKI, columns=["title", "text"]).to_pylist()
    return [
        ("", ""),
        *((row["title"], row["text"]) for row in rows),
        ("the the", "?!"),
        ("", "the " * 500),
    ]


def arrays(folder: Path) -> list[np.ndarray]:
    return [np.load(folder / f"bm25_{name}.npy") for name in ("data", "indices", "indptr")]


@pytest.mark.parametrize("block", [40, 1_000, 1 << 22])
def test_scores_are_those_of_bm25s_bit_for_bit(tmp_path, monkeypatch, documents, block):
    import bm25s

    monkeypatch.setattr(postings, "BLOCK", block)
    write_bm25(documents, tmp_path)
    # no scratch file is left
    assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".json"}
    vocabulary = json.loads((tmp_path / "bm25_vocabulary.json").read_bytes())
    ids = [[vocabulary[w] for w in _words(title) * 2 + _words(text)] for title, text in documents]
    settings = {name: BM25_SETTINGS[name] for name in ("k1", "b", "method")}
    reference = bm25s.BM25(**settings)
    reference.index((ids, vocabulary), create_empty_token=False, show_progress=False)
    for found, name in zip(arrays(tmp_path), ("data", "indices", "indptr"), strict=True):
        assert np.array_equal(found, reference.scores[name]), name


def test_a_word_of_more_than_a_block_is_found_in_all_its_documents(tmp_path, monkeypatch):
    monkeypatch.setattr(postings, "BLOCK", 7)
    write_bm25([("", f"common word{number}") for number in range(50)], tmp_path)
    [found] = Bm25Ranker(tmp_path, 50).rank(["common"], 50)
    assert [row for row, _ in found] == list(range(50))


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("天安门广场", 0),
        ("อาหารไทย", 1),
        ("हिन्दी", 2),
        ("東京のGDP", 3),
        ("门", None),
        ("strasse", None),
    ],
)
def test_words_are_found_in_scripts_without_blanks_and_with_marks(tmp_path, query, row):
    texts = [
        "北京的天安门广场很大。",
        "ฉันชอบอาหารไทยมาก",
        "मुझे हिन्दी और हिंद पसंद",
        "東京都のGDPは大きい",
        "die Straße",
    ]
    write_bm25([("", text) for text in texts], tmp_path)
    [found] = Bm25Ranker(tmp_path, 5).rank([query], 1)
    assert [number for number, _ in found] == ([] if row is None else [row])
