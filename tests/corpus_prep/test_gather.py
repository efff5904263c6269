"""From files to documents, and to the documents that are kept."""

import json
import logging

import pytest

from corpus_prep.read.files import Columns
from corpus_prep.read.quality import QualityRules
from tasks.corpus.documents import corpus_identity, gather, measure_reading, settle
from tests.support.rows import publish, row
from warehouse.store import Store


@pytest.fixture
def place(tmp_path):
    return Store(tmp_path / "store").run("corpus")


def write(path, *texts):
    path.write_text(
        "".join(json.dumps({"id": str(i), "text": text}) + "\n" for i, text in enumerate(texts))
    )
    return str(path)


def gathered(place, path, **rules):
    given = {"columns": Columns(), "max_chars": 1_000, "rules": QualityRules(**rules)}
    return gather(place, path, identity=corpus_identity(path), **given)


def test_a_document_that_breaks_a_rule_keeps_its_text_and_names_the_rule(place, tmp_path):
    path = write(tmp_path / "a.jsonl", "x" * 99, "x" * 100, "x" * 1_001, "")
    documents = gathered(place, path)
    assert [(d["dropped_reason"], len(d["text"])) for d in documents.rows()] == [
        ("too_short", 99),
        (None, 100),
        ("too_long", 0),
        ("empty", 0),
    ]
    assert documents.recipe["counts"] == {"too_short": 1, "too_long": 1, "empty": 1}


def test_long_documents_are_cut_unless_they_are_to_be_dropped(place, tmp_path):
    path = write(tmp_path / "a.jsonl", "word " * 30, "x" * 200 + "\n" + "y" * 240)
    documents = gathered(place, path, max_chars=250)
    assert [(d["document_id"], d["num_chars"], d["piece_of"]) for d in documents.rows()] == [
        ("0", 150, None),
        ("1#1of2", 201, "1"),
        ("1#2of2", 240, "1"),
    ]
    measured = {
        r["metric"]: r["value"] for r in measure_reading(place, documents, label="read").rows()
    }
    assert (measured["documents cut"], measured["pieces of documents"], measured["rows_out"]) == (
        1,
        2,
        3,
    )
    dropped = gathered(place, path, max_chars=250, long="drop")
    assert [d["dropped_reason"] for d in dropped.rows()] == [None, "too_long"]


def test_another_rule_reads_the_corpus_again_and_the_same_one_does_not(place, tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", "x" * 99, "x" * 100)
    gathered(place, path)
    caplog.clear()
    with caplog.at_level(logging.INFO, "selfplay"):
        gathered(place, path)
        assert gathered(place, path, min_chars=10).recipe["counts"] == {}
    assert [" fresh, " in m or "min_chars" in m for m in caplog.messages][:2] == [True, True]


def test_what_any_screening_drops_is_gone_and_the_order_stays(place, tmp_path):
    documents = gathered(
        place, write(tmp_path / "a.jsonl", *("xy " * n for n in (40, 41, 3, 42, 43)))
    )
    near = publish(
        place,
        "screenings",
        row("screenings", document_id="1", kept=False, reason="near_duplicate", instead="0"),
        row("screenings", document_id="3", kept=True),
        label="near",
    )
    seen = publish(
        place,
        "screenings",
        row("screenings", document_id="4", kept=False, reason="seen"),
        label="seen",
    )
    settled = settle(place, documents, screened=[near, seen], label="kept")
    assert [d["document_id"] for d in settled.rows()] == ["0", "3"]
    assert [d["document_id"] for d in settle(place, documents, label="all").rows()] == [
        "0",
        "1",
        "3",
        "4",
    ]
