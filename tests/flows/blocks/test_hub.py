"""A dataset that cannot be fetched is refused at once, with another way to give it."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from flows.app.seeds import Source, draw
from flows.blocks.corpora import open_documents
from flows.blocks.evaluation import open_evaluation
from flows.method import opened
from flows.runtime.hub import check_reachable
from flows.settings import profile
from flows.spice.config import Config as Spice
from tests.support.rows import publish, row

DATASET = "hf:owner/name?revision=1"


@pytest.fixture(autouse=True, params=["offline", "no network"])
def unreachable(request, monkeypatch):
    if request.param == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")


def test_a_benchmark_names_the_option_that_reads_a_file(store):
    cfg = profile.load(Spice, "micro")
    told = r"gsm8k\S* cannot be read, as the hub does not answer: .*\n.*--file FILE"
    with opened(cfg, store, "mine", begins=False) as run, pytest.raises(ValueError, match=told):
        open_evaluation(run, "gsm8k")


def test_a_corpus_can_be_saved_where_there_is_a_network(store):
    with pytest.raises(
        ValueError, match=r"hf:owner/name\S* cannot be read.*\nsave it where there is a network"
    ):
        open_documents(store.run("mine"), DATASET)


def test_a_source_of_questions_names_the_file_to_put_in_place(tmp_path):
    gsm8k = {
        "count": 1,
        "like": "gsm8k",
        "source": "hf:openai/gsm8k?config=main&split=train",
        "revision": "1",
    }
    drawn = draw(Source(name="gsm8k", **gsm8k), tmp_path, seed=0)
    assert drawn.problem and "or put its training split into" in drawn.problem


def test_nothing_is_asked_for_files_and_for_what_was_read(tmp_path, store):
    table = publish(store.run("mine"), "documents", row("documents"))
    for source, read in ((str(tmp_path), None), (f"hf:{tmp_path}", None), (DATASET, table)):
        check_reachable(source, "", read)
