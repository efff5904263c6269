"""The flow prepare-corpus on real text with known duplicates and a known evaluation set."""

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.blocks.corpora import find_memberships, open_documents
from flows.corpus.config import Config
from flows.corpus.flow import prepare, prepare_corpus
from flows.runtime.record import open_run
from flows.runtime.request import Request
from flows.settings import profile
from tasks.corpus.documents import take
from tasks.reports.corpus import ask
from warehouse.query import query
from warehouse.store import Store

WIKI = Path(__file__).parents[2] / "data" / "wiki_passages_30.parquet"
PROFILE = "text"


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """30 passages; a copy of one, another with one word changed, a text too short, and a
    question made from a third."""
    passages = pq.read_table(WIKI, columns=["id", "title", "text"]).to_pylist()
    longest = sorted(passages, key=lambda p: -len(p["text"]))
    copied = longest[0]
    edited = longest[1]
    asked = longest[2]
    words = edited["text"].split()
    changed = " ".join([*words[:5], "changed", *words[6:]])
    more = [
        {"id": "copy", "text": copied["text"]},
        {"id": "edited", "text": changed},
        {"id": "short", "text": "x"},
    ]
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps(p) + "\n" for p in [*passages, *more])
    )
    question = {"id": "q", "question": " ".join(asked["text"].split()[:40])}
    (tmp_path / "set.jsonl").write_text(json.dumps(question) + "\n")
    monkeypatch.setenv("SELFPLAY_STORE", str(tmp_path / "store"))
    return tmp_path, {"copied": copied["id"], "edited": edited["id"], "asked": asked["id"]}


def overrides(tmp_path):
    return {
        "quality.min_chars": 20,
        "contamination.benchmarks": [{"name": "quiz", "path": str(tmp_path / "set.jsonl")}],
        "canaries": 5,
    }


def run(tmp_path, **more):
    given = {**overrides(tmp_path), **more}
    path = str(tmp_path / "corpus.jsonl")
    asked = Request(
        flow="prepare-corpus", profile=PROFILE, run="wiki", overrides=given, corpus=path
    )
    cfg = profile.load(Config, PROFILE, asked.settings)
    with open_run(asked, cfg, force=True) as store:
        assert store.is_played("wiki")
        made = prepare(cfg, store.run("wiki"))
    assert not store.is_played("wiki")
    return made, asked


def test_what_goes_says_why_and_the_rest_stays_in_order_with_an_index(corpus):
    tmp_path, known = corpus
    table, asked = run(tmp_path)
    ids = [row["document_id"] for row in table.rows()]
    dropped = query(
        tmp_path / "store",
        """
        select document_id, reason, instead from screenings where not kept
        union all
        select document_id, dropped_reason, null
        from documents
        where label is null and dropped_reason is not null
        """,
    )
    assert {(row["document_id"], row["reason"], row["instead"]) for row in dropped} == {
        ("short", "too_short", None),
        ("copy", "exact_duplicate", known["copied"]),
        (known["edited"], "near_duplicate", "edited"),  # the longer one stays
        ("2wiki-33", "near_duplicate", "2wiki-37"),  # a pair among the passages
        (known["asked"], "contaminated: quiz", None),
    }
    assert ids == [
        r["id"] for r in lines(tmp_path) if r["id"] not in {row["document_id"] for row in dropped}
    ]
    recalls = query(
        tmp_path / "store", "select value from measurements where metric = 'canary_recall'"
    )
    assert [row["value"] for row in recalls] == [1.0, 1.0]
    page = (tmp_path / "store" / "reports" / "wiki" / "corpus.html").read_text()
    assert page.count("<svg") >= 2
    # the edited copy beside its original
    assert "Doubtful pairs" in page and "<mark>changed</mark>" in page
    [largest, *_] = ask(table, "families")
    assert {f["stays"]: f["go"] for f in ask(table, "families")}["edited"] == [known["edited"]]
    assert largest["documents"] == 2
    assert all(why is None for _, why in prepare_corpus.inquire(asked, {}).reasons)


def test_a_benchmark_of_the_registry_is_known_by_its_name_or_entry(corpus):
    tmp_path, known = corpus
    (asked,) = [json.loads(line) for line in (tmp_path / "set.jsonl").read_text().splitlines()]
    (tmp_path / "items.jsonl").write_text(
        json.dumps({"problem": asked["question"], "solution": "42"}) + "\n"
    )
    (tmp_path / "quiz.toml").write_text(
        'title = "t"\nfile = "items.jsonl"\nlicence = "MIT"\nscorer = "short"\n'
        'columns = { question = ["problem"], answers = ["solution"] }\nprotocol = { own = {} }\n'
    )
    named = {
        "contamination.registry": [str(tmp_path / "quiz.toml")],
        "contamination.folder": str(tmp_path),
    }
    run(tmp_path, **{**named, "contamination.benchmarks": []})
    found = query(
        tmp_path / "store",
        "select document_id, reason from screenings where reason like 'contaminated%'",
    )
    assert [tuple(row.values()) for row in found] == [(known["asked"], "contaminated: quiz")]
    with pytest.raises(ValueError, match=r"there is no benchmark quizz; there are 2wiki, "):
        run(tmp_path, **{"contamination.registry": ["quizz"]})
    with pytest.raises(
        ValueError, match=r"only a harness reads ifeval: name its file in contamination\.benchmarks"
    ):
        run(tmp_path, **{"contamination.registry": ["ifeval"]})


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "corpus.jsonl").read_text().splitlines()]


def test_another_threshold_compares_nothing_anew(corpus, caplog):
    tmp_path, _ = corpus
    run(tmp_path)
    caplog.clear()
    table, _ = run(tmp_path, **{"duplicates.comparing.floor": 0.5, "contamination.benchmarks": []})
    fresh = {m.split(":")[0] for m in caplog.messages if " fresh, " in m}
    assert {"wiki/documents", "wiki/bands", "wiki/duplicates", "wiki/screenings.near"} <= fresh
    assert table.num_rows == 29


def test_a_prepared_corpus_is_taken_by_name_and_outlives_its_run(corpus):
    tmp_path, _ = corpus
    made, _ = run(tmp_path)
    store = Store(tmp_path / "store")
    taken = open_documents(store.run("play"), "wiki", None)
    assert taken.rows() == made.rows() and not list(taken.problems(thorough=True))
    assert (taken.files / "index" / "manifest.json").stat().st_ino == (
        made.files / "index" / "manifest.json"
    ).stat().st_ino
    assert take(store.run("play"), made).address == taken.address
    with pytest.raises(
        ValueError,
        match=(
            r"there is no corpus 'nothing': give a file or folder, hf:.* or a finished run of"
            r" prepare"
        ),
    ):
        open_documents(store.run("play"), "nothing", None)


def test_clusters_of_one_document_need_no_model(corpus):
    tmp_path, _ = corpus
    table, _ = run(tmp_path, **{"clusters.size": 1})
    store = Store(tmp_path / "store")
    ids = [row["document_id"] for row in table.rows()]
    members = find_memberships(store, "wiki").rows()
    assert [(m["document_id"], m["cluster"], m["parent"]) for m in members] == [
        (d, i, None) for i, d in enumerate(ids)
    ]
    with pytest.raises(
        ValueError, match=r"clusters\.size=1, which makes every document a cluster of its own"
    ):
        run(tmp_path, **{"clusters.size": 2})


def test_rules_that_nothing_meets_stop_the_flow_with_their_counts(corpus):
    tmp_path, _ = corpus
    with pytest.raises(
        ValueError, match=r"none of 33 documents is usable: low_score 33\..*quality.min_score=null"
    ):
        run(tmp_path, **{"quality.min_chars": 0, "quality.min_score": 1.0})
    # each with its reason, for inspection
    assert len(Store(tmp_path / "store").get("wiki/documents").rows()) == 33


def test_what_an_earlier_configuration_dropped_is_not_reported_again(corpus):
    tmp_path, _ = corpus
    run(tmp_path)
    table, _ = run(tmp_path, **{"contamination.benchmarks": []})
    reasons = {row["reason"] for row in ask(table, "reasons")}
    assert "near_duplicate" in reasons and not any(
        reason.startswith("contaminated") for reason in reasons
    )


def test_a_reason_that_takes_many_documents_is_a_warning_with_the_way_out(corpus, caplog):
    tmp_path, _ = corpus
    run(tmp_path, **{"quality.max_chars": 330, "quality.long": "drop"})
    [told] = [m for m in caplog.messages if "dropped: too_long" in m]
    assert re.fullmatch(
        r"wiki/documents: \d+ of 33 dropped: too_long \(quality.long='cut' cuts them.*\)", told
    )
