"""A real model on English text, shortened: `make demo-english` in two minutes. Skipped without
its wheel."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.app.command.demo import ANSWERS, BFLOAT16, EXAMPLES, has_amx
from flows.corpus.flow import prepare_corpus
from flows.runtime.request import Request
from flows.runtime.store_root import SOURCE
from flows.spell.flow import spell_iteration
from tasks.rollouts.tokens import count_tokens
from tests.support import smollm2
from warehouse.query import query

pytestmark = pytest.mark.slow

SHORT = {
    "steps": 1,
    "group_size": 4,
    "sampling.groups": 3,
    "sampling.clusters_per_round": 16,
    "sampling.right_share": 0.0,
    "evaluation.baselines": [{"prompts": "lines-3-shot", "chat_template": "none"}],
    "engine.kv_cache_bytes": 1 << 28,
    **(BFLOAT16 if has_amx() else {}),
}


@pytest.fixture(scope="module")
def model() -> Path:
    return smollm2.made()


@pytest.fixture(scope="module")
def store(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    lines = (SOURCE / "data" / "english" / "nq.jsonl").read_text().splitlines()
    (folder / "nq.jsonl").write_text("\n".join(lines[:24]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        patch.chdir(SOURCE)  # profiles name files relative to it
        prepare_corpus.run(Request(flow="prepare-corpus", profile="english", run="english"))
        settings = {**SHORT, "evaluation.benchmark": str(folder / "nq.jsonl")}
        asked = Request(flow="spell-iteration", profile="smollm2", run="r", overrides=settings)
        spell_iteration.run(asked)
        yield folder / "store"


def test_the_tokenizer_is_smollms(model: Path) -> None:
    """Every digit is one token, and so is each of the 17 special tokens."""
    assert [count_tokens(text, str(model)) for text in ("1874", "<file_sep>", "<|im_start|>")] == [
        4,
        1,
        1,
    ]


def test_no_passage_of_the_corpus_is_of_a_benchmark_and_each_is_a_cluster(store: Path) -> None:
    [counts] = query(
        store,
        "select count(*) as n, count(distinct cluster) as clusters from memberships where run ="
        " 'english'",
    )
    assert counts["n"] == counts["clusters"] > 2000


def test_the_model_asks_answers_and_is_updated_on_what_it_was_sampled_with(store: Path) -> None:
    [asked] = query(
        store, "select count(text) as readable, count(*) as n from tasks where phase = 'play'"
    )
    # about half are readable in a full run, of 40 per step
    assert asked["n"] == 16 and asked["readable"] >= 4
    [update] = query(
        store, "select metrics['mean_ratio'] as ratio, metrics['num_datums'] as datums from updates"
    )
    assert update["datums"] in (4, 8, 12)  # groups of four
    assert update["ratio"] == pytest.approx(1.0, abs=0.05)  # bfloat16 in engine and trainer


def test_scores_and_examples_stand_side_by_side(store: Path) -> None:
    scores = query(store, ANSWERS, {"run": "r"})
    assert [row["model"] for row in scores] == ["before", "before, lines-3-shot", "after"]
    assert all(row["n"] == 24 and " ± " in row["exact_match"] for row in scores)
    examples = query(store, EXAMPLES, {"run": "r", "label": "640-tokens"})
    assert len(examples) == 12 and all(row["question"] and row["accepted"] for row in examples)


def test_the_trained_policy_is_served(store: Path) -> None:
    """`selfplay serve` answers as the run's policy does, and ends with Ctrl-C."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "flows.app.command.cli", "serve", "r", "--port", str(port)]
    environment = {**os.environ, "SELFPLAY_STORE": str(store), "PYTHONPATH": str(SOURCE)}
    server = subprocess.Popen(command, cwd=SOURCE, env=environment, start_new_session=True)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        deadline = time.monotonic() + 900
        while time.monotonic() < deadline and server.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/models").status_code == 200:
                    break
            time.sleep(1)
        prompt = "Text: [Oslo] Oslo is the capital of Norway.\nQuestion: what is oslo?\nAnswer:"
        asked = {"model": "r", "prompt": prompt, "max_tokens": 12, "temperature": 0, "stop": "\n"}
        said = httpx.post(f"{url}/completions", json=asked, timeout=600).json()
        assert said["model"] == "r" and said["choices"][0]["text"].strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(600)
    with pytest.raises(httpx.TransportError):  # nothing of it is left
        httpx.get(f"{url}/models")
